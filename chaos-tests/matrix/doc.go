// Package matrix has the tests behind `make chaos`: the scenes of package scene with real binaries, containerd and runc,
// in which whoever can die dies, at every point.
//
//	TestPoints    the worker at each crash point, then once more at each point that is passed until the call that was
//	              cut off is answered, and each step that can fail failing once
//	TestCrun      the worker at each crash point, with crun
//	TestRuntime   runc killed, or stopped and continued, in the middle of each call
//	TestDaemon    containerd killed while the worker is held at each point, and the worker with it
//
// A job is named <scene>[-tty]/<what is armed>, for example "plain/start.after-effect+recover.before-settle"; with
// TEST=TestPoints RUN='...' only the jobs of those names are run. The tests have the build tag chaos, so that `make test` has them not.
package matrix
