"""Parts of docs/ that are made from the code: whole reference pages, and tables between marks in pages by hand."""
