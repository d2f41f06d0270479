// Only in the served book: loads the page again when the server has built it anew.
new EventSource("/changes").onmessage = () => location.reload();
