"""Run mcp_tools.py in a copy of a process that has imported the SDK: `copied_tools.py SOCKET`.

The copy gets this program's standard streams. It ends with this program, and this one with it.
"""

import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    socket.send_fds(connection, [b"x"], [0, 1, 2])
    for stream in (0, 1, 2):
        os.close(stream)  # the other ends see the end of the copy's streams
    os._exit(int(connection.recv(16) or b"1"))
