"""The imports that need no reference: Google's well-known and common types, and Confluent's.

The compiler brings the well-known types; the others are written out here, with the field numbers
of their published definitions.
"""

from typing import Final

from penstock.schemas.protobuf.compiler import read_bundled


def _file(package: str, body: str, imports: str = "") -> str:
    return f'syntax = "proto3";\npackage {package};\n{imports}{body}\n'


def _google(body: str, imports: str = "") -> str:
    return _file("google.type", body, imports)


def _enum(name: str, constants: str) -> str:
    values = " ".join(
        f"{constant} = {number};" for number, constant in enumerate(constants.split())
    )
    return _google(f"enum {name} {{ {values} }}")


def _imported(name: str) -> str:
    return f'import "google/protobuf/{name}.proto";\n'


META: Final = "confluent/meta.proto"
_META_TEXT: Final = _file(
    "confluent",
    "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3;"
    " repeated Rule rules = 4; }\n"
    "message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }\n"
    "extend google.protobuf.FileOptions { Meta file_meta = 1088; }\n"
    "extend google.protobuf.MessageOptions { Meta message_meta = 1088; }\n"
    "extend google.protobuf.FieldOptions { Meta field_meta = 1088; }\n"
    "extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }\n"
    "extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }",
    _imported("descriptor"),
)
_COLOR: Final = (
    "message Color { float red = 1; float green = 2; float blue = 3;"
    " google.protobuf.FloatValue alpha = 4; }"
)
_DATETIME: Final = (
    "message DateTime { int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4;"
    " int32 minutes = 5; int32 seconds = 6; int32 nanos = 7;"
    " oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } }\n"
    "message TimeZone { string id = 1; string version = 2; }"
)
_INTERVAL: Final = (
    "message Interval { google.protobuf.Timestamp start_time = 1;"
    " google.protobuf.Timestamp end_time = 2; }"
)
_PHONE_NUMBER: Final = (
    "message PhoneNumber {"
    " message ShortCode { string region_code = 1; string number = 2; }"
    " oneof kind { string e164_number = 1; ShortCode short_code = 2; } string extension = 3; }"
)
_POSTAL_ADDRESS: Final = (
    "message PostalAddress { int32 revision = 1; string region_code = 2; string language_code = 3;"
    " string postal_code = 4; string sorting_code = 5; string administrative_area = 6;"
    " string locality = 7; string sublocality = 8; repeated string address_lines = 9;"
    " repeated string recipients = 10; string organization = 11; }"
)
_TIME_OF_DAY: Final = (
    "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
)

WRITTEN_OUT: Final = {
    META: _META_TEXT,
    "confluent/type/decimal.proto": _file(
        "confluent.type",
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    ),
    "confluent/type/variant.proto": _file(
        "confluent.type", "message Variant { bytes metadata = 1; bytes value = 2; }"
    ),
    "google/type/calendar_period.proto": _enum(
        "CalendarPeriod",
        "CALENDAR_PERIOD_UNSPECIFIED DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR",
    ),
    "google/type/color.proto": _google(_COLOR, _imported("wrappers")),
    "google/type/date.proto": _google(
        "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"
    ),
    "google/type/datetime.proto": _google(_DATETIME, _imported("duration")),
    "google/type/dayofweek.proto": _enum(
        "DayOfWeek",
        "DAY_OF_WEEK_UNSPECIFIED MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY",
    ),
    "google/type/decimal.proto": _google("message Decimal { string value = 1; }"),
    "google/type/expr.proto": _google(
        "message Expr { string expression = 1; string title = 2; string description = 3;"
        " string location = 4; }"
    ),
    "google/type/fraction.proto": _google(
        "message Fraction { int64 numerator = 1; int64 denominator = 2; }"
    ),
    "google/type/interval.proto": _google(_INTERVAL, _imported("timestamp")),
    "google/type/latlng.proto": _google(
        "message LatLng { double latitude = 1; double longitude = 2; }"
    ),
    "google/type/money.proto": _google(
        "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }"
    ),
    "google/type/month.proto": _enum(
        "Month",
        "MONTH_UNSPECIFIED JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER"
        " NOVEMBER DECEMBER",
    ),
    "google/type/phone_number.proto": _google(_PHONE_NUMBER),
    "google/type/postal_address.proto": _google(_POSTAL_ADDRESS),
    "google/type/quaternion.proto": _google(
        "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }"
    ),
    "google/type/timeofday.proto": _google(_TIME_OF_DAY),
}  # fmt: skip


def known_text(name: str) -> str | None:
    """The text of an import that needs no reference; None for any other."""
    if name in WRITTEN_OUT:
        return WRITTEN_OUT[name]
    if not name.startswith("google/protobuf/") or name.count("/") != 2:
        return None
    return read_bundled(name)
