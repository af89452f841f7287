"""Memory, disk and traffic that a fit takes."""
