"""Every key that a RocketMQ configuration file may hold, to distinguish "RocketMQ's, but not served here" from
"unknown".

The spellings are RocketMQ's own, `Maped`, `DLeger` and `Mills` included. Which of them are served is defined
by the settings dataclasses; `NOTES` says what to do instead where that is worth a sentence.

Java: common/BrokerConfig.java, common/namesrv/NamesrvConfig.java, remoting/netty/Netty{Server,Client}Config.java,
store/config/MessageStoreConfig.java
"""

from __future__ import annotations


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAME_SERVER = _keys(
    """
    rocketmqHome kvConfigPath configStorePath productEnvName clusterTest orderMessageEnable configBlackList
    """
)

REMOTING = _keys(
    """
    listenPort serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads serverOnewaySemaphoreValue
    serverAsyncSemaphoreValue serverChannelMaxIdleTimeSeconds serverSocketSndBufSize serverSocketRcvBufSize
    writeBufferHighWaterMark writeBufferLowWaterMark serverSocketBacklog serverPooledByteBufAllocatorEnable
    useEpollNativeSelector clientWorkerThreads clientCallbackExecutorThreads clientOnewaySemaphoreValue
    clientAsyncSemaphoreValue connectTimeoutMillis channelNotActiveInterval clientChannelMaxIdleTimeSeconds
    clientSocketSndBufSize clientSocketRcvBufSize clientPooledByteBufAllocatorEnable clientCloseSocketIfTimeout useTLS
    """
)

TLS_CLIENT = _keys(
    """
    tls.client.authServer tls.client.trustCertPath tls.client.certPath tls.client.keyPath tls.client.keyPassword
    """
)
"""A broker's, as a client of name servers; one file may serve both."""

BROKER = _keys(
    """
    rocketmqHome namesrvAddr brokerIP1 brokerIP2 brokerName brokerClusterName brokerId brokerPermission
    defaultTopicQueueNums autoCreateTopicEnable clusterTopicEnable brokerTopicEnable autoCreateSubscriptionGroup
    messageStorePlugIn msgTraceTopicName traceTopicEnable sendMessageThreadPoolNums putMessageFutureThreadPoolNums
    pullMessageThreadPoolNums processReplyMessageThreadPoolNums queryMessageThreadPoolNums adminBrokerThreadPoolNums
    clientManageThreadPoolNums consumerManageThreadPoolNums heartbeatThreadPoolNums endTransactionThreadPoolNums
    flushConsumerOffsetInterval flushConsumerOffsetHistoryInterval rejectTransactionMessage
    fetchNamesrvAddrByAddressServer sendThreadPoolQueueCapacity putThreadPoolQueueCapacity pullThreadPoolQueueCapacity
    replyThreadPoolQueueCapacity queryThreadPoolQueueCapacity clientManagerThreadPoolQueueCapacity
    consumerManagerThreadPoolQueueCapacity heartbeatThreadPoolQueueCapacity endTransactionPoolQueueCapacity
    filterServerNums longPollingEnable shortPollingTimeMills notifyConsumerIdsChangedEnable highSpeedMode
    commercialEnable commercialTimerCount commercialTransCount commercialBigCount commercialBaseCount
    transferMsgByHeap maxDelayTime regionId registerBrokerTimeoutMills slaveReadEnable
    disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold brokerFastFailureEnable waitTimeMillsInSendQueue
    waitTimeMillsInPullQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInTransactionQueue
    startAcceptSendRequestTimeStamp traceOn enableCalcFilterBitMap expectConsumerNumUseFilter
    maxErrorRateOfBloomFilter filterDataCleanTimeSpan filterSupportRetry enablePropertyFilter compressedRegister
    forceRegister registerNameServerPeriod transactionTimeOut transactionCheckMax transactionCheckInterval aclEnable
    storeReplyMessageEnable enableDetailStat autoDeleteUnusedStats isolateLogEnable configBlackList brokerConfigPath
    """
)

STORE = _keys(
    """
    storePathRootDir storePathCommitLog storePathDLedgerCommitLog readOnlyCommitLogStorePaths mappedFileSizeCommitLog
    mappedFileSizeConsumeQueue enableConsumeQueueExt mappedFileSizeConsumeQueueExt bitMapLengthConsumeQueueExt
    flushIntervalCommitLog commitIntervalCommitLog useReentrantLockWhenPutMessage flushCommitLogTimed
    flushIntervalConsumeQueue cleanResourceInterval deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
    destroyMapedFileIntervalForcibly redeleteHangedFileInterval deleteWhen diskMaxUsedSpaceRatio fileReservedTime
    putMsgIndexHightWater maxMessageSize checkCRCOnRecover flushCommitLogLeastPages commitCommitLogLeastPages
    flushLeastPagesWhenWarmMapedFile flushConsumeQueueLeastPages flushCommitLogThoroughInterval
    commitCommitLogThoroughInterval flushConsumeQueueThoroughInterval maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInMemory maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk
    accessMessageInMemoryMaxRatio messageIndexEnable maxHashSlotNum maxIndexNum maxMsgsNumBatch messageIndexSafe
    haListenPort haSendHeartbeatInterval haHousekeepingInterval haTransferBatchSize haMasterAddress
    haSlaveFallbehindMax brokerRole flushDiskType syncFlushTimeout slaveTimeout messageDelayLevel
    flushDelayOffsetInterval cleanFileForciblyEnable warmMapedFileEnable offsetCheckInSlave debugLockEnable
    duplicationEnable diskFallRecorded osPageCacheBusyTimeOutMills defaultQueryMaxNum transientStorePoolEnable
    transientStorePoolSize fastFailIfNoBufferInStorePool enableDLegerCommitLog dLegerGroup dLegerPeers dLegerSelfId
    preferredLeaderId isEnableBatchPush enableBatchPush enableScheduleMessageStats enableLmq enableMultiDispatch
    maxLmqConsumeQueueNum enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
    scheduleAsyncDeliverMaxResendNum2Blocked
    """
)

OTHER_VERSIONS = _keys(
    """
    mapedFileSizeCommitLog mapedFileSizeConsumeQueue mapedFileSizeConsumeQueueExt mapperFileSizeBatchConsumeQueue
    putMessageTimeout wakeFlushWhenPutMessage wakeCommitWhenPutMessage useABSLock topicQueueLockNum writeWithoutMmap
    autoMessageVersionOnTopicLen enabledAppendPropCRC forceVerifyPropCRC recheckReputOffsetFromCq readUnCommitted
    maxFilterMessageSize travelCqFileNumWhenGetMessage pullBatchMaxMessageCount haMaxGapNotInSync totalReplicas
    inSyncReplicas minInSyncReplicas allAckInSyncStateSet enableAutoInSyncReplicas haMaxTimeSlaveNotCatchup
    syncFromLastFile asyncLearner maxSlaveResendLength haFlowControlEnable maxHaTransferByteInSecond
    deleteFileBatchMax diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio timerWheelEnable timerPrecisionMs
    timerRollWindowSlot timerMaxDelaySec mappedFileSizeTimerLog timerFlushIntervalMs timerCongestNumEachSlot
    mappedFileSwapEnable commitLogSwapMapReserveFileNum commitLogSwapMapInterval commitLogForceSwapMapInterval
    cleanSwapedMapInterval enableCompaction storeType configManagerVersion waitTimeMillsInLitePullQueue
    waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue litePullThreadPoolQueueCapacity
    ackThreadPoolQueueCapacity adminBrokerThreadPoolQueueCapacity litePullMessageThreadPoolNums
    transactionOpMsgMaxSize transactionOpBatchInterval channelExpiredTimeout subscriptionExpiredTimeout
    useServerSideResetOffset consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep enableBroadcastOffsetStore
    enableSlaveActingMaster enableControllerMode controllerAddr asyncSendEnable realTimeNotifyConsumerChange bindAddress
    """
)
"""Keys of RocketMQ 3.x and 5.x, which 4.9.8 skips in silence."""

TEMPLATES = _keys(
    """
    storePathConsumeQueue storePathConsumerQueue storePathIndex storeCheckpoint abortFile checkTransactionMessageEnable
    rmqAddressServerDomain rmqAddressServerSubGroup
    """
)
"""Keys that no version of the last years reads, and that widely copied broker.conf files have all the same."""

ALL = NAME_SERVER | REMOTING | TLS_CLIENT | BROKER | STORE | OTHER_VERSIONS | TEMPLATES

_POOL = "there are no thread pools here"
_OLD_SIZE = (
    "RocketMQ 4.9 ignores this spelling of 4.7 and older too; write mappedFileSize… if you mean it, but only with"
)

_BELOW_ROOT = "RocketMQ skips it too, the files lie below storePathRootDir"

NOTES: dict[str, str] = {
    "storePathConsumeQueue": _BELOW_ROOT,
    "storePathConsumerQueue": _BELOW_ROOT,
    "storePathIndex": _BELOW_ROOT,
    "storeCheckpoint": _BELOW_ROOT,
    "abortFile": _BELOW_ROOT,
    "checkTransactionMessageEnable": "RocketMQ skips it too, transactions are always checked",
    "enableDLegerCommitLog": "the log is not replicated by DLedger; an existing DLedger store cannot be opened",
    "enableControllerMode": "there is no controller; the broker's role is fixed by brokerRole and brokerId",
    "storeType": "only RocketMQ's files are served, not RocksDB",
    "mapedFileSizeCommitLog": f"{_OLD_SIZE} the size that the existing files have",
    "mapedFileSizeConsumeQueue": f"{_OLD_SIZE} the size that the existing files have",
    "serverWorkerThreads": _POOL,
    "serverCallbackExecutorThreads": _POOL,
    "serverSelectorThreads": _POOL,
    "clientWorkerThreads": _POOL,
    "clientCallbackExecutorThreads": _POOL,
    "sendMessageThreadPoolNums": _POOL,
    "pullMessageThreadPoolNums": _POOL,
    "transientStorePoolEnable": "records are written straight into the mapped log, which needs no pool beside it",
    "useEpollNativeSelector": "the event loop uses the platform's best selector anyway",
    "timerWheelEnable": "RocketMQ 5's timer files are not written; delay levels work",
}
"""What a warning about a key that is not served adds to its name."""
