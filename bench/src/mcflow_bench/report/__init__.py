"""Tables and figures of benchmark results, as Markdown, HTML and blocks of documentation pages."""
