"""What people see on the terminal while something runs, and when it ends."""
