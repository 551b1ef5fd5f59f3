"""What a workload is: the kind of clients, how much they do, and what is mixed in."""

from __future__ import annotations

from dataclasses import dataclass

from ticdc_lab.errors import ContractError
from ticdc_lab.events import tso

BANK, TPCC, HOT_KEYS = "bank", "tpcc", "hot-keys"
KINDS = (BANK, TPCC, HOT_KEYS)
ROWS_A_LANE, LEAST_LANES = 250_000, 8
START_TS = tso.compose(1_795_258_305_000)

_SCHEMA = {BANK: "bank", TPCC: "tpcc", HOT_KEYS: "hot"}
_MOST_ROWS_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Changes of an upstream, given by a few numbers; equal ones give equal rows, however Spark divides the work.

    Attributes
    ----------
    kind
        ``bank``: transfers between accounts and a journal of them; the sum of all balances is :attr:`total` at every
        commit_ts, also while accounts are closed and opened again. ``tpcc``: new-order, payment and delivery on
        eight tables of TPC-C. ``hot-keys``: rows that are chosen by a zipf distribution.
    rows
        Row changes, to within about one in a hundred; tpcc, whose first deliveries find no orders, may make a tenth
        less below 100,000.
    seed
        Chooses everything that is left to chance.
    tables
        Of accounts (bank) or of keys (hot-keys); tpcc has its own.
    keys
        Rows that live at the beginning (bank, tpcc) or can be chosen (hot-keys), about; None for a tenth of ``rows``,
        at most a million.
    zipf
        Exponent of hot-keys: key 1 is the hottest, key r is chosen about 1 / r ** ``zipf`` as often.
    delete_share
        Of the transactions of bank that close an account (or open it again), of the rows of hot-keys that delete.
    long_share, long_ms
        Of the transactions that began about so many ms before they commit; others take up to 20 ms.
    big_share, big_rows
        Of the row changes that belong to big transactions, and rows in one of these; they touch all tables but
        journals.
    ddl
        DDL statements after the tables were created, evenly spaced: columns are added, modified and dropped, tables
        renamed, truncated, dropped and created again.
    rows_per_s
        Row changes in a second of virtual time.
    watermark_ms
        Virtual time between two watermarks.
    start_ts
        TSO before the first commit; its logical part counts as 0.
    rollback_share, conflict_share
        For :func:`ticdc_lab.workload.load_of` alone: for how many of the transactions another one is added that
        changes the same rows and rolls back, and how many of these begin while the first holds its locks.

    Raises
    ------
    ContractError
        A number is out of its range; the message names it and the reason.

    Examples
    --------
    >>> Workload(kind="tpcc", rows=1_000_000).lanes
    8
    """

    kind: str = BANK
    rows: int = 100_000
    seed: int = 0
    tables: int = 4
    keys: int | None = None
    zipf: float = 1.1
    delete_share: float = 0.02
    long_share: float = 0.0
    long_ms: int = 5_000
    big_share: float = 0.0
    big_rows: int = 1_000
    ddl: int = 0
    rows_per_s: int = 10_000
    watermark_ms: int = 100
    start_ts: int = START_TS
    rollback_share: float = 0.0
    conflict_share: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ContractError(f"No workload is called {self.kind!r}; expected one of {', '.join(KINDS)}.")
        for name in ("delete_share", "long_share", "big_share", "rollback_share", "conflict_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ContractError(f"{name} is {getattr(self, name)}; expected 0 to 1.")
        for name, least in (("rows", 1_000), ("tables", 1), ("big_rows", 1), ("watermark_ms", 1), ("long_ms", 1)):
            if getattr(self, name) < least:
                raise ContractError(f"{name} is {getattr(self, name)}; expected at least {least}.")
        for name in ("seed", "ddl", "start_ts", "zipf"):
            if getattr(self, name) < 0:
                raise ContractError(f"{name} is {getattr(self, name)}; expected 0 or more.")
        if self.seed >= 1 << 63:
            raise ContractError(f"seed is {self.seed}; expected a number below 2^63.")
        if not 1 <= self.rows_per_s <= _MOST_ROWS_PER_S:
            raise ContractError(f"rows_per_s is {self.rows_per_s}; expected 1 to {_MOST_ROWS_PER_S}.")
        if self.tables > 1000:
            raise ContractError(f"tables is {self.tables}; expected at most 1000.")

    @property
    def lanes(self) -> int:
        """Count the parts into which the work is divided, each with rows of its own; nothing else decides it."""
        return max(LEAST_LANES, -(-self.rows // ROWS_A_LANE))

    @property
    def keys_a_lane(self) -> int:
        """Count the rows that a lane has at the beginning, or chooses from."""
        keys = min(self.rows // 10, 1_000_000) if self.keys is None else self.keys
        return max(8, keys // self.lanes)

    @property
    def schema_name(self) -> str:
        """Give the database."""
        return _SCHEMA[self.kind]
