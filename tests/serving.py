"""A plain file server on this machine."""

import functools
import http.server
import threading


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and leaves standard error to the tests."""

    def log_message(self, *_):
        pass


class Server:
    """Serves a folder until `stop`; `address` ends without a slash."""

    def __init__(self, folder):
        handler = functools.partial(Quiet, directory=str(folder))
        # Port 0: the system picks a free one, so that tests can run side by side.
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
