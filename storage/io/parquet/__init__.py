"""Read Parquet files in bounded memory, as anyone may have written them."""
