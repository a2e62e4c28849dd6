"""Times of a trace: what can be read in two ways is refused by name, never guessed.

Numbers count from a start that the map names. Text is ISO 8601, or has the format that the map
gives. A time without a zone needs the map's time zone; hours that this zone has twice or never are
dropped and counted.
"""

import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from collectors.trace.cells import Floats, is_text, numbers_of, texts_of
from collectors.trace.column_map import TIME_UNITS, TraceTime
from collectors.trace.numbers import NumberForm
from data.base.errors import SettingsError, scrub

Times = npt.NDArray[np.int64]
NO_TIME = -1
"""In place of a time that was dropped."""
FIRST_SECOND, LAST_SECOND = 1e9, 4e9
"""2001 and 2096: a time before or after is no time of a reading."""
_MIN_SHARE = 0.5
_ZONED = re.compile(r".*\d[T ]\d{2}.*?(?:[zZ]|[+-]\d{2}(?::?\d{2})?)")
_UTC_WORD = re.compile(r"\s*(?:UTC|GMT)$")
_DAY_AND_MONTH = re.compile(r"\s*(\d{1,2})([/.-])(\d{1,2})[/.-]\d{2,4}")
_DIGITS = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")


def times_of(array: pa.Array, time: TraceTime, dropped: Counter[str]) -> tuple[Times, bool]:
    """Return us since the epoch and whether a time took the zone of the map, having none itself.

    NO_TIME stands where a time is missing, broken or has no place in UTC.

    Reasons counted: no-time, broken-time, ambiguous-local-time, nonexistent-local-time. Errors:
    SettingsError where numbers, days or zones can be read in more than one way.
    """
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        if time.start is not None:
            raise SettingsError(
                f"the column {time.column!r} holds {kind}, and the map counts it in {time.unit}",
                'Write unit = "timestamp" and no start under [time].',
            )
        return _of_timestamps(array, time, dropped)
    if time.start is not None:
        return _of_numbers(array, time, time.start, dropped), False
    if is_text(kind):
        return _of_texts(array, time, dropped)
    numbers, _bad = numbers_of(array, NumberForm(column=time.column))
    raise _numbers_without_unit(numbers, time)


def _micros(seconds: Floats, bad: npt.NDArray[np.bool_], dropped: Counter[str]) -> Times:
    """Return the seconds since the epoch as us; missing and impossible ones are counted."""
    missing = bad | np.isnan(seconds)
    finite = np.where(missing, 0.0, seconds)
    inside = (finite >= FIRST_SECOND) & (finite <= LAST_SECOND)
    dropped["no-time"] += int(missing.sum())
    dropped["broken-time"] += int((~missing & ~inside).sum())
    return np.where(inside, np.round(np.where(inside, finite, 0.0) * 1e6), NO_TIME).astype(np.int64)


def _of_numbers(array: pa.Array, time: TraceTime, start: datetime, dropped: Counter[str]) -> Times:
    numbers, bad = numbers_of(array, NumberForm(column=time.column))
    present = numbers[np.isfinite(numbers)]
    origin = start.timestamp()
    with np.errstate(over="ignore", invalid="ignore"):
        seconds = origin + numbers * TIME_UNITS[time.unit]
    finite = seconds[np.isfinite(seconds)]
    if len(present) and _share((finite < FIRST_SECOND) | (finite > LAST_SECOND)) > _MIN_SHARE:
        raise _numbers_without_unit(present, time)
    if len(present) and origin > FIRST_SECOND and _epoch_unit(present) == time.unit:
        raise _numbers_without_unit(present, time)
    return _micros(seconds, bad, dropped)


def _share(flags: npt.NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _epoch_unit(numbers: Floats) -> str:
    """Return the unit in which most numbers are times since 1970 of this century, '' if none."""
    for unit in ("seconds", "milliseconds", "microseconds", "nanoseconds"):
        seconds = numbers * TIME_UNITS[unit]
        if _share((seconds >= FIRST_SECOND) & (seconds <= LAST_SECOND)) > _MIN_SHARE:
            return unit
    return ""


def _numbers_without_unit(numbers: Floats, time: TraceTime) -> SettingsError:
    present = numbers[np.isfinite(numbers)]
    example = f"{present[0]:.15g}" if len(present) else "none"
    stated = f"unit = {time.unit!r}" + (f", start = {time.start:%Y-%m-%d}" if time.start else "")
    unit = _epoch_unit(present)
    return SettingsError(
        f"the column {time.column!r} holds numbers such as {example}"
        + (f", which are {unit} since 1970" if unit else "")
        + f"; the map says {stated}",
        f'Write unit = "{unit or "seconds"}" and start = '
        + ('"1970-01-01T00:00:00Z"' if unit else "the time that 0 stands for")
        + " under [time].",
    )


def _of_timestamps(array: pa.Array, time: TraceTime, dropped: Counter[str]) -> tuple[Times, bool]:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("s"))
    unit = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[array.type.unit]
    missing = array.is_null().to_numpy(zero_copy_only=False)
    counts = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    times = _micros(np.where(missing, np.nan, counts * unit), missing, dropped)
    exact = counts // 1000 if array.type.unit == "ns" else counts * round(unit * 1e6)
    times = np.where(times == NO_TIME, NO_TIME, exact)
    if array.type.tz is not None:
        return times, False
    return _in_zone(times, time, "timestamps", dropped), bool((times != NO_TIME).any())


def _of_texts(array: pa.Array, time: TraceTime, dropped: Counter[str]) -> tuple[Times, bool]:
    texts = texts_of(array)
    distinct = pd.Series(texts.distinct, dtype="str").str.strip()
    present = distinct[distinct != ""]
    if not time.format and len(present):
        _require_iso(present, time)
    parsed, zoned = _parsed(distinct, time)
    seconds = pd.Series(parsed).astype("int64").to_numpy() / 1e6
    times = _micros(texts.spread(np.where(pd.isna(parsed), np.nan, seconds)), texts.long, dropped)
    naive = texts.spread(~zoned) & (times != NO_TIME)
    if not naive.any():
        return times, False
    example = present[~zoned[present.index]]
    local = _in_zone(np.where(naive, times, NO_TIME), time, example.iloc[0], dropped)
    return np.where(naive, local, times), True


def _parsed(distinct: pd.Series, time: TraceTime) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Return the times of distinct texts as if naive ones were UTC, and which name their zone."""
    form: Any = time.format or "ISO8601"
    if ("%I" in form) is not ("%p" in form):  # strptime takes no notice of %p beside %H
        raise SettingsError(
            f"[time] format {scrub(str(form))!r} cannot be used: hours are %I with %p, or %H alone",
            'Write %I for hours with AM and PM: format = "%m/%d/%Y %I:%M:%S %p".',
        )
    if time.format:
        zoned = np.full(len(distinct), "%z" in form or "%Z" in form)
    else:
        distinct = distinct.str.replace(_UTC_WORD, "Z", regex=True)
        zoned = distinct.map(lambda text: bool(_ZONED.fullmatch(text))).to_numpy(dtype=bool)
    try:
        parsed = pd.to_datetime(distinct, format=form, errors="coerce", utc=True)
    except (ValueError, OverflowError, re.error) as error:
        raise SettingsError(
            f"[time] format {scrub(str(form))!r} cannot be used: {scrub(str(error), limit=120)}",
            'Write it as strptime does: format = "%d/%m/%Y %H:%M:%S".',
        ) from error
    return parsed.astype("datetime64[us, UTC]"), zoned


def _require_iso(present: pd.Series, time: TraceTime) -> None:
    """Refuse text that is mostly no ISO 8601. Errors: SettingsError with what it may be."""
    digits = present.map(lambda text: bool(_DIGITS.fullmatch(text)))
    if digits.mean() > _MIN_SHARE:
        raise _numbers_without_unit(np.array([float(text) for text in present[digits]]), time)
    dated = present.map(_DAY_AND_MONTH.match)
    matches = [match for match in dated if match is not None]
    if len(matches) <= _MIN_SHARE * len(present):
        plain = present.str.replace(_UTC_WORD, "Z", regex=True)
        read = pd.to_datetime(plain, format="ISO8601", errors="coerce", utc=True)
        if read.notna().mean() > 1 - _MIN_SHARE:
            return
        hint = 'Name the format in the map: format = "%d %b %Y %H:%M:%S", as strptime reads it.'
        raise SettingsError(
            f"the column {time.column!r} holds times such as {scrub(present.iloc[0], limit=40)!r}, "
            "which are no ISO 8601",
            hint,
        )
    day = max(int(match[1]) for match in matches) > 12
    month = max(int(match[3]) for match in matches) > 12
    mark = matches[0][2]
    forms = [f"%d{mark}%m{mark}%Y", f"%m{mark}%d{mark}%Y"]
    order = "day first" if day else "month first" if month else "day or month first"
    raise SettingsError(
        f"the column {time.column!r} holds times such as {scrub(matches[0].string, limit=40)!r}: "
        f"{'mixed' if day and month else order}",
        f'Name the order in the map: format = "{forms[month and not day]} %H:%M:%S"'
        + ("." if day or month else f', or "{forms[1]} %H:%M:%S".'),
    )


def _in_zone(times: Times, time: TraceTime, example: str, dropped: Counter[str]) -> Times:
    """Return local times as UTC; those that a zone has twice or never are dropped and counted."""
    valid = times != NO_TIME
    if not valid.any():
        return times
    if not time.zone:
        raise SettingsError(
            f"the column {time.column!r} holds times without a zone, such as "
            f"{scrub(example, limit=40)!r}",
            'Name it in the map, under [time]: timezone = "UTC", or one such as "Europe/Berlin".',
        )
    distinct, places = np.unique(times[valid], return_inverse=True)
    local = pd.DatetimeIndex(distinct.astype("datetime64[us]"))
    zone = UTC if time.zone == "UTC" else ZoneInfo(time.zone)
    shifted = local.tz_localize(zone, ambiguous="NaT", nonexistent="shift_forward")
    twice = np.asarray(shifted.isna())
    placed = local.tz_localize(zone, ambiguous=np.ones(len(local), bool), nonexistent="NaT")
    never = np.asarray(placed.isna())
    dropped["ambiguous-local-time"] += int(twice[places].sum())
    dropped["nonexistent-local-time"] += int(never[places].sum())
    utc = placed.tz_convert("UTC").as_unit("us").asi8
    converted = np.where(twice | never, NO_TIME, utc)
    result = times.copy()
    result[valid] = converted[places]
    return result
