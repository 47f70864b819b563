"""What pages see as it happens, over one WebSocket for each page."""
