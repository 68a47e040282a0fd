"""The TOSA specification as data, and the script that turns its sources into Python modules."""
