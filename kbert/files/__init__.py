"""Files and folders: those that are given, found and read; and writing of which no reader finds half. No Keras here."""
