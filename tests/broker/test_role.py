"""A broker's initial role: brokerRole and brokerId are consistent, and an administrator's decision holds until they
change."""

from __future__ import annotations

import pytest

from rocketlet.broker.role import RoleFile, Standing, configured, with_standing
from rocketlet.common.settings import SettingsError
from rocketlet.store.config import BrokerRole, StoreConfig
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.memory_broker import loaded_settings, memory_broker


@pytest.mark.parametrize(("role", "number"), [("SLAVE", 0), ("ASYNC_MASTER", 1), ("SYNC_MASTER", 3)])
async def test_a_contradicting_role_and_id_fail_the_start(role: str, number: int) -> None:
    with pytest.raises(SettingsError, match=rf"brokerRole={role}.*brokerId={number}|brokerId={number}.*{role}"):
        async with memory_broker(broker_role=role, broker_id=number):
            pass


def test_a_decided_role_holds_until_the_settings_change() -> None:
    disk, slave = MemoryDisk(), loaded_settings(broker_role="SLAVE", broker_id=1)
    assert RoleFile(disk, slave).read() == configured(slave) == Standing(BrokerRole.SLAVE, 1)
    promoted = Standing(BrokerRole.SYNC_MASTER, 0)
    RoleFile(disk, slave).write(promoted)
    assert RoleFile(disk, slave).read() == promoted
    assert with_standing(slave, promoted)[StoreConfig].broker_role is BrokerRole.SYNC_MASTER
    again = loaded_settings(broker_role="SLAVE", broker_id=2)
    assert RoleFile(disk, again).read() == Standing(BrokerRole.SLAVE, 2)


def test_an_unreadable_role_file_fails_the_start() -> None:
    disk, loaded = MemoryDisk(), loaded_settings()
    disk.write_file("store/rocketlet/role.json", b"{")
    with pytest.raises(SettingsError, match=r"role\.json cannot be read.*delete it"):
        RoleFile(disk, loaded).read()
