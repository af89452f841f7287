"""The model families, one file each; what a file must hold is in `collapsar.pipeline.contract`."""
