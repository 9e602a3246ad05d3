"""The user's table: its columns, rows and what is learnt of them."""
