"""What columns do to the response, as posterior quantities."""
