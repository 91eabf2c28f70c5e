"""Bytes that a connection has received, as h11 reads them, in lines and chunks that the runtime in C++ takes too."""

import re

from h11._receivebuffer import ReceiveBuffer

from speccompile.serving.http.request_head import check_head, read_header, refuse

_END = b"\r\n"
_LONE_LF = re.compile(rb"(?<!\r)\n")
_CHUNK_LINE = re.compile(rb"(0{0,12}[0-9a-fA-F]{1,8})[ \t]*(?:;.*)?", re.DOTALL)
_TLS_HANDSHAKE, _BLANK = 0x16, 0x20


class Received(ReceiveBuffer):
    """h11's buffer, which raises h11.RemoteProtocolError for lines that h11 alone would take, in the words of the
    server in C++. in_body: whether lines are those of a body, its trailers."""

    def __init__(self, most_bytes: int) -> None:
        """most_bytes: of a line and headers, and of the line of a chunk."""
        super().__init__()
        self._most, self.in_body = most_bytes, False

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines up to the first empty one, or None while it has not come."""
        waiting = bytes(self)
        if not self.in_body and waiting and waiting[0] <= _BLANK and waiting[0] not in _END:
            if waiting[0] == _TLS_HANDSHAKE:
                refuse("the request is no HTTP: TLS is left to a proxy in front of this server")
            refuse("the first line of the request is not METHOD TARGET VERSION")
        lines = super().maybe_extract_lines()
        if _LONE_LF.search(waiting, 0, len(waiting) - len(self) if lines is not None else len(waiting)):
            refuse("a line of the request does not end with CR LF")
        if self.in_body:
            for line in lines or ():
                read_header(bytes(line))
        elif lines:
            check_head([bytes(line) for line in lines])
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """Return the size of a chunk, without extensions, or None while its line has not come."""
        waiting = bytes(self._data[: self._most + 1])
        line = super().maybe_extract_next_line()
        if _LONE_LF.search(waiting if line is None else line):
            refuse("a line of the request does not end with CR LF")
        if line is None:
            return None
        if len(line) > self._most:
            refuse("too long", 431)
        found = _CHUNK_LINE.fullmatch(line.removesuffix(_END))
        if not found:
            refuse("the size of a chunk is no number of one to eight hexadecimal digits")
        return bytearray(found[1] + _END)
