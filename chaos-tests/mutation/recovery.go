package main

var recoveryMutants = []mutant{
	{
		name: "lost-exec-run-again", file: "recovery/judge.go", in: "func judgeLaunch(",
		old: "return Lost", new: "return Undo",
		hurts: "user code runs twice",
		by:    "recovery TestEveryCell",
	},
	{
		name: "launched-mark-ignored", file: "recovery/judge.go", in: "func judgeLaunch(",
		old: "case !o.Launched || !o.Ran:", new: "case !o.Launched && !o.Ran:",
		hurts: "an exec that was never run is reported as lost, or one that ran is run again",
		by:    "recovery TestEveryCell",
	},
	{
		name: "waiting-init-taken-for-started", file: "recovery/judge.go", in: "func judgeStart(",
		old: " && !o.Unstarted", new: "",
		hurts: "a container that waits for ever is shown as running",
		by:    "recovery TestEveryCell",
	},
	{
		name: "kill-forgotten", file: "recovery/judge.go", in: "func Judge(",
		old: "return Repeat", new: "return Undo",
		hurts: "a kill that has worked is answered with an error",
		by:    "recovery TestEveryCell",
	},
	{
		name: "half-a-create-adopted", file: "recovery/judge.go", in: "func judgeCreate(",
		old: `case o.Status != "" && o.PidFile != 0:`, new: `case o.Status != "" || o.PidFile != 0:`,
		hurts: "a container without an init is reported as created",
		by:    "recovery TestEveryCell",
	},
	{
		name: "half-frozen-taken-for-paused", file: "recovery/judge.go", in: "func Judge(",
		old: `finishIf(o.Status == "paused")`, new: `finishIf(o.Status != "running")`,
		hurts: "a pause that did not happen is reported as done",
		by:    "recovery TestEveryCell",
	},
	{
		name: "half-an-image-taken-for-a-checkpoint", file: "recovery/judge.go", in: "func judgeCheckpoint(",
		old: "o.Ran && gone && o.Dumped", new: "o.Ran && gone",
		hurts: "a checkpoint that cannot be restored is reported as done",
		by:    "recovery TestEveryCell",
	},
	{
		name: "orphan-not-waited-for", file: "recovery/settle.go", in: "func observe(",
		old: "runtime.WaitOrphans(ctx, intent.IntentName()); err != nil", new: "ctx.Err(); err != nil",
		hurts: "runc is still at work while its effect is judged: two inits for one id",
		by:    "recovery TestOrphansAreWaitedForFirst",
	},
	{
		name: "mute-runtime-taken-for-gone", file: "recovery/settle.go", in: "func observe(",
		old: "err != nil && !errors.Is(err, errdefs.ErrNotFound)", new: "err != nil && !errors.Is(err, errdefs.ErrNotFound) && ctx.Err() != nil",
		hurts: "a runtime that fails for a moment makes a running container vanish",
		by:    "recovery TestNothingIsJudgedInTheDark",
	},
	{
		name: "stray-not-looked-for", file: "recovery/settle.go", in: "func observe(",
		old: `o.PidFile == 0 && o.Launched && (`, new: `o.PidFile != 0 && o.Launched && (`,
		hurts: "a running exec is reported as lost, and runs on unseen",
		by:    "recovery TestStrayIsLookedFor",
	},
	{
		name: "invented-status", file: "recovery/settle.go", in: "func outcome(",
		old: "Status: lifecycle.UnknownStatus", new: "Status: 137",
		hurts: "a process that nobody saw end is reported as killed",
		by:    "recovery TestLostIsUnknown",
	},
	{
		name: "judgement-without-its-request", file: "recovery/settle.go", in: "func outcome(",
		old: "Intent: intent.Seq, Request: intent.Request}", new: "Intent: intent.Seq}",
		hurts: "the replay of a request does not find the answer",
		by:    "recovery TestAnOutcomeIsThatOfItsIntent",
	},
}
