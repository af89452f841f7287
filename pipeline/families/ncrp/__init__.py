"""Trees of topics by the nested Chinese restaurant process."""
