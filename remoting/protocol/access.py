"""Accounts of the plain ACL: the requests that change and show them (50 to 53).

Java: common/protocol/header/CreateAccessConfigRequestHeader.java and its neighbours
"""

from __future__ import annotations

from rocketlet.remoting.protocol.header import Header

# Header fields that a client's signature adds to any request.
ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


class UpdateAclConfigHeader(Header):
    """50. The permissions are comma lists of `topic=PUB|SUB`. None leaves a value unchanged."""

    accessKey: str = ""
    secretKey: str = ""
    whiteRemoteAddress: str | None = None
    admin: bool | None = None
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: str | None = None
    groupPerms: str | None = None


class DeleteAclConfigHeader(Header):
    """51."""

    accessKey: str = ""


class AclInfoAnswerHeader(Header):
    """The answer to 52. Both versions are JSON: a DataVersion, and a map from file to DataVersion."""

    version: str
    brokerName: str
    brokerAddr: str
    clusterName: str
    allAclFileVersion: str | None = None


class UpdateGlobalWhiteAddrsHeader(Header):
    """53: a comma list."""

    globalWhiteAddrs: str = ""
    aclFileFullPath: str | None = None
