"""The lab: a local page on which one picks an algorithm, a cluster and a size, and sees what comes of it.

The rules:

- It listens on the loopback interface only, answers only requests that name it so (a page from elsewhere that points
  its name at this machine gets nothing), and serves nothing but the files in ``static``, the player, and JSON.
- What a request may ask for is bounded (``question.py``), few are worked on at once, and a comparison ends when its
  time is up and says what it left out. It reads no file that a request names.
- Errors of the library are shown as they are.
"""
