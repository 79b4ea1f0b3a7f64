"""Every operation of the API's document, asked with what the document allows and with what it does not."""
