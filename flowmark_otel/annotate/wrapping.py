"""Functions of every kind run inside an operation: plain, coroutine, generator (A2).

What a call gives back decides when the operation ends: a coroutine when it was awaited, a
generator when it is exhausted, closed or raises. A generator's operation is current only while its
own code runs, never in its consumer between two items.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])
R = TypeVar("R")


class Capped(Protocol):
    """A block of a coroutine that is stopped when its time is up."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Block(Capped, Protocol):
    """An operation as far as a function that runs inside it needs it."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def pause(self) -> None:
        """Leave the block without ending the operation; entering goes on with it."""
        ...

    def cap(self) -> Capped:
        """The block of one step of a generator, all of whose steps share its time."""
        ...


def wrap(function: F, block: Callable[[], Block]) -> F:
    """``function`` with each call inside a block of its own; its kind and signature stay."""
    wrapper: Callable[..., object]
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: object, **kwargs: object) -> object:
            async with block():
                return await function(*args, **kwargs)

        wrapper = coroutine
    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: object, **kwargs: object) -> Generator[object, object, object]:
            return (yield from _stepped(block(), function(*args, **kwargs)))

        wrapper = generator
    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def async_generator(*args: object, **kwargs: object) -> AsyncGenerator[object, object]:
            return _stepped_async(block, function(*args, **kwargs))

        wrapper = async_generator
    else:

        @functools.wraps(function)
        def plain(*args: object, **kwargs: object) -> object:
            return run(block(), lambda: function(*args, **kwargs))

        wrapper = plain
    return cast("F", wrapper)


def run(block: Block, function: Callable[[], R]) -> R:
    """The result of a function, run inside a block."""
    block.__enter__()
    try:
        result = function()
    except BaseException as error:
        block.__exit__(type(error), error, error.__traceback__)
        raise
    later: object = None
    if inspect.iscoroutine(result):
        later = _awaited(block, result)
    elif inspect.isgenerator(result):
        later = _stepped(block, cast("Generator[object, object, object]", result))
    elif inspect.isasyncgen(result):
        later = _stepped_async(lambda: block, cast("AsyncGenerator[object, object]", result))
    if later is None:
        block.__exit__(None, None, None)
        return result
    block.pause()
    return cast("R", later)


async def _awaited(block: Block, coroutine: Coroutine[Any, Any, object]) -> object:
    async with block:
        return await coroutine


def _stepped(
    block: Block, generator: Generator[object, object, object]
) -> Generator[object, object, object]:
    step: Callable[[], object] = functools.partial(next, generator)
    try:
        while True:
            block.__enter__()
            try:
                item = step()
            finally:
                block.pause()
            try:
                sent = yield item
            except BaseException as thrown:  # noqa: BLE001 - handed to the generator itself
                step = functools.partial(generator.throw, thrown)
            else:
                step = functools.partial(generator.send, sent)
    except StopIteration as stop:
        block.__exit__(None, None, None)
        return stop.value
    except BaseException as error:
        block.__exit__(type(error), error, error.__traceback__)
        raise


async def _stepped_async(
    opened: Callable[[], Block], generator: AsyncGenerator[object, object]
) -> AsyncGenerator[object, object]:
    block = opened()
    step: Callable[[], Any] = generator.__anext__
    try:
        while True:
            block.__enter__()
            try:
                async with block.cap():
                    item = await step()
            finally:
                block.pause()
            try:
                sent = yield item
            except BaseException as thrown:  # noqa: BLE001 - handed to the generator itself
                step = functools.partial(generator.athrow, thrown)
            else:
                step = functools.partial(generator.asend, sent)
    except StopAsyncIteration:
        block.__exit__(None, None, None)
    except BaseException as error:
        block.__exit__(type(error), error, error.__traceback__)
        raise
