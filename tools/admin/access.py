"""mqadmin: accounts, which this broker does not have. updateAclConfig deleteAclConfig clusterAclConfigVersion
updateGlobalWhiteAddr getAclConfig.

They exist so that a script gets a plain answer instead of "no such command".

Java: tools/command/acl/UpdateAccessConfigSubCommand.java and its neighbours
"""

from __future__ import annotations

import click

from rocketlet.tools.admin.command import AdminError

_ANY = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["-h", "--help"]}


def _not_served(name: str) -> click.Command:
    @click.command(name, context_settings=_ANY)
    @click.pass_context
    def say(ctx: click.Context) -> None:
        """Not served: Rocketlet's broker has no accounts."""
        raise AdminError(
            f"{name} is not served: this broker has no access control, so it has no accounts; let it listen on"
            " loopback or behind a firewall (docs/compatibility.md)"
        )

    return say


update_acl_config = _not_served("updateAclConfig")
delete_acl_config = _not_served("deleteAclConfig")
cluster_acl_config_version = _not_served("clusterAclConfigVersion")
update_global_white_addr = _not_served("updateGlobalWhiteAddr")
get_acl_config = _not_served("getAclConfig")
