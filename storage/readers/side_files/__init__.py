"""Read side files: labels and covariates of documents in files of their own."""
