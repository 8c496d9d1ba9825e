"""The program that the command starts as a reference: it passes questions on to the process that called `validate`, and its answers back.

It runs by itself (`python -I _relay.py SOCKET`), so it imports nothing of the package.
"""

import os
import socket
import sys
import threading

QUESTIONS, ANSWERS = 3, 4


def main() -> None:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])

    def answers() -> None:
        while piece := connection.recv(1 << 20):
            view = memoryview(piece)
            while view:
                view = view[os.write(ANSWERS, view) :]
        # The other side has gone: nobody will answer any more.
        os._exit(0)

    threading.Thread(target=answers, daemon=True).start()
    while piece := os.read(QUESTIONS, 1 << 20):
        connection.sendall(piece)


if __name__ == "__main__":
    main()
