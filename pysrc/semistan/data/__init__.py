"""How the user's table is read: text and other files, tables of other libraries, images."""
