"""The frame of every SVG that we write: the document, its style, and numbers written short."""

from __future__ import annotations

from xml.sax.saxutils import escape

from farandole.show import scene

FONT = "font-family='system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif'"

STYLE = (
    f"text{{fill:{scene.INK};font-size:10px}}.h{{font-size:16px;font-weight:650}}.r{{font-size:12px;font-weight:600}}"
    f".n,.c{{fill:{scene.SOFT}}}.c,.k,.m{{text-anchor:middle}}.k{{font-size:8.5px}}"
    f".f{{fill:none;stroke:{scene.INK};stroke-width:1.6}}.a{{fill:none;stroke:{scene.INK};stroke-width:1.1;opacity:.75}}"
)


def number(value: float) -> str:
    """A coordinate, to a tenth, without needless zeros.

    >>> number(12.04), number(0.25), number(-0.01)
    ('12', '0.2', '0')
    """
    text = f"{value:.1f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(name: str, inside: str = "", /, **attributes: float | str) -> str:
    """An element; numbers are written short, empty attributes left out, ``class_`` is ``class``, ``_`` a hyphen.

    >>> element("rect", x=1.04, width=20, class_="", stroke_width=2)
    "<rect x='1' width='20' stroke-width='2'/>"
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}='{value if isinstance(value, str) else number(value)}'"
        for key, value in attributes.items()
        if value != ""
    )
    return f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>"


def document(width: float, height: float, name: str, description: str, body: str, style: str = "") -> str:
    """An SVG document with a white ground, so that it reads the same everywhere."""
    tip = element("path", d="M0 0L8 4L0 8z", fill=scene.INK)
    marker = element(
        "marker", tip, id="to", viewBox="0 0 8 8", refX=6, refY=4, markerWidth=6, markerHeight=6, orient="auto"
    )  # fmt: skip
    size = f"viewBox='0 0 {number(width)} {number(height)}' width='{number(width)}' height='{number(height)}'"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-labelledby='name about' {FONT}>"
        f"<title id='name'>{escape(name)}</title><desc id='about'>{escape(description)}</desc>"
        f"<style>{STYLE}{style}</style><defs>{marker}</defs>"
        f"<rect width='100%' height='100%' fill='#fff'/>\n{body}</svg>\n"
    )
