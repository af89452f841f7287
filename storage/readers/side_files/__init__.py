"""Labels and numbers of documents that lie beside them."""
