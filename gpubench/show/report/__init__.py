"""Results as one HTML page that needs nothing else: no network, no server, no installed font."""
