// Package cases holds public bug reports about shims, turned into what must hold here. Those whose subject has a package
// of its own are there. Which test is about which report (bare numbers: containerd/containerd):
//
//	case 1: 14113, moby#46212: init ends while containerd is down, then keeper and worker are killed
//	    cases.TestShimIsKilledWhileContainerdIsAway
//	    keeperdeath.TestKeeperAndWorkerAreKilled
//	case 2: 4400, 829: init ends while containerd is down for minutes (PERDURE_TEST_DOWN)
//	    down.TestContainerdAway
//	case 3: 6402, 10727, moby#43491: kill -9 of a shim process
//	    cases.TestShimIsKilledWhileContainerdIsAway
//	    keeperdeath.TestKeeperOfARunningContainerIsKilled
//	    keeperdeath.TestKeeperOfATaskThatIsCreatedIsKilled
//	    kill.TestKillsInSingleContainers
//	case 4: 10651, 10589, 9719: execs start and end while init ends
//	    cases.TestInitDiesUnderExecs
//	    cases.TestExecEndsWithInit
//	case 7: 11392, 7496: the client of a Delete is killed, or gives up
//	    cases.TestDeleteIsAskedForTwice
//	    cases.TestDeleteWhoseClientIsGone
//	case 8: 6860, 5015, 10437: containerd is killed in the middle of a Create
//	    cases.TestContainerdIsKilledInTheMiddleOfACreate
//	case 9: 8557, 2709, 3949: many execs, side by side and in a row
//	    cases.TestExecsDoNotWaitForEachOther
//	    cases.TestExecsInARow
//	case 15: 9103: init dies between create and start
//	    cases.TestInitDiesBeforeItsStart
//	case 16: 3529, moby#40145: thousands of children exit at once
//	    cases.TestThousandsOfChildrenExitAtOnce
//	    keeper.TestFiveThousandOrphansAtOnce
package cases
