#!/usr/bin/python3
"""Stands between a scheduler of the demonstration and its database.

    proxy.py SOCKET SOCKET-OF-THE-SERVER

Passes on what comes. While it is stopped (SIGSTOP) nothing comes through, and nobody is
told, as in a network that drops packets; what was sent meanwhile arrives when it goes on.
When it is killed the connections break.
"""

import os
import socket
import socketserver
import sys
import threading


def pass_on(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for end in source, sink:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Connection(socketserver.BaseRequestHandler):
    def handle(self):
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(sys.argv[2])
            back = threading.Thread(target=pass_on, args=(server, self.request))
            back.start()
            pass_on(self.request, server)
            back.join()


class Proxy(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


if os.path.exists(sys.argv[1]):
    os.unlink(sys.argv[1])
Proxy(sys.argv[1], Connection).serve_forever()
