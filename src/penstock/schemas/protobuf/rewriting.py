"""A walk over a tree that makes another: everything is copied as it is unless a subclass says so.

The scope is the path of names of the types around, innermost last, as name look-up wants it.
"""

from typing import TypeAlias

from penstock.schemas.protobuf.tree import (
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    Message,
    OneOf,
    Option,
    ProtoFile,
    Reserved,
    Rpc,
    Service,
)

Scope: TypeAlias = tuple[str, ...]
Options: TypeAlias = tuple[Option, ...]


class Rewriter:
    """Copies; a subclass overrides what it wants to come out otherwise."""

    def file(self, file: ProtoFile) -> ProtoFile:
        """A whole file."""
        return file._replace(
            options=self.options(file.options, ()),
            messages=tuple(self.message(one, (one.name,)) for one in file.messages),
            enums=tuple(self.enum(one, (one.name,)) for one in file.enums),
            extends=self.extends(file.extends, ()),
            services=tuple(map(self.service, file.services)),
        )

    def message(self, message: Message, scope: Scope) -> Message:
        """A message; `scope` ends in its own name."""
        return message._replace(
            fields=tuple(self.field(one, scope) for one in message.fields),
            oneofs=tuple(self.oneof(one, scope) for one in message.oneofs),
            groups=tuple(self.group(one, scope) for one in message.groups),
            nested=tuple(self.message(one, (*scope, one.name)) for one in message.nested),
            enums=tuple(self.enum(one, (*scope, one.name)) for one in message.enums),
            reserved=self.reserved(message.reserved),
            extensions=self.extensions(message.extensions, scope),
            extends=self.extends(message.extends, scope),
            options=self.options(message.options, scope),
        )

    def field(self, field: Field, scope: Scope) -> Field:
        """A field, wherever it stands."""
        return field._replace(options=self.options(field.options, scope))

    def oneof(self, oneof: OneOf, scope: Scope) -> OneOf:
        """A oneof with its members."""
        return oneof._replace(
            fields=tuple(self.field(one, scope) for one in oneof.fields),
            groups=tuple(self.group(one, scope) for one in oneof.groups),
            options=self.options(oneof.options, scope),
        )

    def group(self, group: Group, scope: Scope) -> Group:
        """A group with its message."""
        return group._replace(
            options=self.options(group.options, scope),
            body=self.message(group.body, (*scope, group.body.name)),
        )

    def enum(self, enum: Enum, scope: Scope) -> Enum:
        """An enum; `scope` ends in its own name."""
        return enum._replace(
            values=tuple(self.enum_value(one, scope) for one in enum.values),
            reserved=self.reserved(enum.reserved),
            options=self.options(enum.options, scope),
        )

    def enum_value(self, value: EnumValue, scope: Scope) -> EnumValue:
        """One constant."""
        return value._replace(options=self.options(value.options, scope))

    def extends(self, extends: tuple[Extend, ...], scope: Scope) -> tuple[Extend, ...]:
        """All extend blocks of a place."""
        return tuple(
            one._replace(
                fields=tuple(self.field(field, scope) for field in one.fields),
                groups=tuple(self.group(group, scope) for group in one.groups),
            )
            for one in extends
        )

    def extensions(
        self, extensions: tuple[Extensions, ...], scope: Scope
    ) -> tuple[Extensions, ...]:
        """The numbers a message leaves to others."""
        return tuple(one._replace(options=self.options(one.options, scope)) for one in extensions)

    def reserved(self, reserved: tuple[Reserved, ...]) -> tuple[Reserved, ...]:
        """What must not come back."""
        return reserved

    def service(self, service: Service) -> Service:
        """A service with its calls."""
        return service._replace(
            rpcs=tuple(map(self.rpc, service.rpcs)), options=self.options(service.options, ())
        )

    def rpc(self, rpc: Rpc) -> Rpc:
        """One call."""
        return rpc._replace(options=self.options(rpc.options, ()))

    def options(self, options: Options, scope: Scope) -> Options:
        """The options of anything."""
        return options
