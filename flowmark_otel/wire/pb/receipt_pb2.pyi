from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Receipt(_message.Message):
    __slots__ = ("partial_success", "capabilities", "backend_id", "stored", "duplicate", "rejections", "custody", "received", "rejected")
    PARTIAL_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    BACKEND_ID_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    REJECTIONS_FIELD_NUMBER: _ClassVar[int]
    CUSTODY_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    partial_success: PartialSuccess
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    backend_id: str
    stored: int
    duplicate: int
    rejections: _containers.RepeatedCompositeFieldContainer[Rejection]
    custody: int
    received: int
    rejected: int
    def __init__(self, partial_success: _Optional[_Union[PartialSuccess, _Mapping]] = ..., capabilities: _Optional[_Iterable[str]] = ..., backend_id: _Optional[str] = ..., stored: _Optional[int] = ..., duplicate: _Optional[int] = ..., rejections: _Optional[_Iterable[_Union[Rejection, _Mapping]]] = ..., custody: _Optional[int] = ..., received: _Optional[int] = ..., rejected: _Optional[int] = ...) -> None: ...

class PartialSuccess(_message.Message):
    __slots__ = ("rejected", "error_message")
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    rejected: int
    error_message: str
    def __init__(self, rejected: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class Rejection(_message.Message):
    __slots__ = ("event_id", "code", "message", "item")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    code: str
    message: str
    item: int
    def __init__(self, event_id: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., item: _Optional[int] = ...) -> None: ...
