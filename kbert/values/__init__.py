"""Values that functions, commands and JSON files are given, checked; and how messages show them. No Keras here."""
