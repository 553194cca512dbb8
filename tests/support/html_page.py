"""HTML as a test reads it: elements with their attributes, and the text nodes below each."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "input", "br", "hr", "img", "col"})


class Element:
    """One element; ``attributes`` as written, ``children`` elements and texts in order."""

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element | str] = []

    @property
    def text(self) -> str:
        """All text below, white space as a browser collapses it."""
        return " ".join(self._raw().split())

    @property
    def classes(self) -> list[str]:
        """The classes."""
        return self.attributes.get("class", "").split()

    def all(self, tag: str | None = None, class_: str | None = None) -> list[Element]:
        """The elements below with a tag or a class, in document order."""
        return [
            element
            for element in self._below()
            if (tag is None or element.tag == tag) and (class_ is None or class_ in element.classes)
        ]

    def by_id(self, identity: str) -> Element:
        """The one element with an id."""
        (found,) = [one for one in self._below() if one.attributes.get("id") == identity]
        return found

    def marks(self) -> list[str]:
        """The kinds of the marks drawn below, in order."""
        return [
            use.attributes["href"].removeprefix("#m-")
            for use in self.all("use")
            if use.attributes["href"].startswith("#m-")
        ]

    def _below(self) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child._below()

    def _raw(self) -> str:
        return "".join(child if isinstance(child, str) else child._raw() for child in self.children)


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("#root", {})
        self.stack = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.stack[-1].children.append(element)
        if tag not in _VOID:
            self.stack.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.stack[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        top = self.stack.pop()
        assert top.tag == tag, f"</{tag}> closes <{top.tag}>"

    def handle_data(self, data: str) -> None:
        self.stack[-1].children.append(data)


def parse(html: str) -> Element:
    """The document; fails where an element is not closed by its own tag."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    assert parser.stack == [parser.root], f"<{parser.stack[-1].tag}> is not closed"
    return parser.root
