"""The upstream: TiKV stores with their CDC component, and PD (:class:`.store.TikvStore`, :class:`.pd.Pd`)."""

from ticdc_lab.simulate.pipeline.tikv.pd import Pd as Pd
from ticdc_lab.simulate.pipeline.tikv.pd import PdState as PdState
from ticdc_lab.simulate.pipeline.tikv.region_data import initial_regions as initial_regions
from ticdc_lab.simulate.pipeline.tikv.store import TikvStore as TikvStore
from ticdc_lab.simulate.pipeline.tikv.store_state import TikvStoreState as TikvStoreState
from ticdc_lab.simulate.pipeline.tikv.store_state import committed as committed
from ticdc_lab.simulate.pipeline.tikv.store_state import committed_in as committed_in
