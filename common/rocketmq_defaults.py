"""Settings of RocketMQ 4.9.8 that are not served here, with the values that it has by default (on two processors).

Requests 26 and 319 show them beside what is served: tools read keys there that decide nothing here, and fail where one
is missing.

Java: as common/rocketmq_keys.py
"""

from __future__ import annotations


def _values(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in text.split())
    return {key: value for key, _, value in pairs}


SERVER = _values(
    """
    serverWorkerThreads=8 serverCallbackExecutorThreads=0 serverSelectorThreads=3 useEpollNativeSelector=false
    serverPooledByteBufAllocatorEnable=true
    """
)

BROKER = SERVER | _values(
    """
    messageStorePlugIn= sendMessageThreadPoolNums=2 putMessageFutureThreadPoolNums=2 pullMessageThreadPoolNums=20
    processReplyMessageThreadPoolNums=20 queryMessageThreadPoolNums=10 adminBrokerThreadPoolNums=16
    clientManageThreadPoolNums=32 consumerManageThreadPoolNums=32 heartbeatThreadPoolNums=2
    endTransactionThreadPoolNums=12 flushConsumerOffsetHistoryInterval=60000 fetchNamesrvAddrByAddressServer=false
    sendThreadPoolQueueCapacity=10000 putThreadPoolQueueCapacity=10000 replyThreadPoolQueueCapacity=10000
    queryThreadPoolQueueCapacity=20000 clientManagerThreadPoolQueueCapacity=1000000
    consumerManagerThreadPoolQueueCapacity=1000000 heartbeatThreadPoolQueueCapacity=50000
    endTransactionPoolQueueCapacity=100000 filterServerNums=0 highSpeedMode=false commercialEnable=true
    commercialTimerCount=1 commercialTransCount=1 commercialBigCount=1 commercialBaseCount=1 transferMsgByHeap=true
    maxDelayTime=40 enableDetailStat=true autoDeleteUnusedStats=false isolateLogEnable=false clientWorkerThreads=4
    clientCallbackExecutorThreads=2 channelNotActiveInterval=60000 clientSocketSndBufSize=0 clientSocketRcvBufSize=0
    clientPooledByteBufAllocatorEnable=false storePathDLedgerCommitLog= readOnlyCommitLogStorePaths=
    bitMapLengthConsumeQueueExt=64 commitIntervalCommitLog=200 useReentrantLockWhenPutMessage=true
    flushCommitLogTimed=true deleteCommitLogFilesInterval=100 deleteConsumeQueueFilesInterval=100
    destroyMapedFileIntervalForcibly=120000 redeleteHangedFileInterval=120000 putMsgIndexHightWater=600000
    commitCommitLogLeastPages=4 flushLeastPagesWhenWarmMapedFile=4096 commitCommitLogThoroughInterval=200
    flushDelayOffsetInterval=10000 warmMapedFileEnable=false debugLockEnable=false duplicationEnable=false
    diskFallRecorded=true osPageCacheBusyTimeOutMills=1000 defaultQueryMaxNum=32 transientStorePoolEnable=false
    transientStorePoolSize=5 fastFailIfNoBufferInStorePool=false enableDLegerCommitLog=false dLegerGroup= dLegerPeers=
    dLegerSelfId= preferredLeaderId= isEnableBatchPush=false enableScheduleMessageStats=true enableLmq=false
    enableMultiDispatch=false maxLmqConsumeQueueNum=20000 enableScheduleAsyncDeliver=false
    scheduleAsyncDeliverMaxPendingLimit=2000 scheduleAsyncDeliverMaxResendNum2Blocked=3
    """
)
