"""The pictures of the documentation, a file each, in colours for light and for dark pages."""
