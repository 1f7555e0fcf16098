package main

import "context"

// slow matches tests that the inner loop leaves out besides those of [plain]: each takes seconds, because it waits for a
// limit of time, starts programs again and again, or does very much. The whole run has them.
const slow = `^(TestPost_MemoryOfBodies|TestView_SameConversation|TestView_SubagentsAreTheSameInEveryReplay|TestView_ManySubagents` + // acp
	`|TestStuck_StartIsBounded|TestStuck_InATurn|TestRefuse_WaitsForOtherCalls|TestPrompt_RunBeside|TestRandom_ThatFailed` + // adapters
	`|TestDoctor_UnwritablePlace|TestDownload_SilentServer|TestProve_SilentAgentEndsWithItsChildren` + // adapters/install
	`|TestCredentials|TestDaemon|TestContainer_SessionsSurviveARestart|TestEditor_EndsWithSignalsAndBrokenPipes|TestEditor_OfficialSDK|TestEditor_InProcess` + // cmd
	`|TestChat_ALongTextIsDrawnInParts|TestChat_OpeningsInAnyOrder|TestChat_NothingIsAnsweredUnread|TestTurn_PermissionAtTheTerminal|TestTurn_QuestionsAtTheTerminal|TestTurn_SecondInterruptLeaves` +
	`|TestPrompt_VersionsSayTheSame|TestPrompt_GoesOnAfterBreaks|TestPrompt_ClosesAndDeletes|TestPrompt_TheChoiceOfAnAgent|TestReport|TestSessionsRaw` +
	`|TestDaemon_Unit|TestDaemon_KeepsItsPort|TestDaemon_StartCutShort|TestDaemon_LostItsFlags|TestFollow_DaemonRestart|TestCommands_GatewayIsSilent|TestServer_PortInUse` +
	`|TestServe_Refuses|TestCommands_NoHub` +
	`|TestTerminal_SlowAndFastViewers|TestTerminal_SlowAndFastReaders|TestTerminal_Shell|TestStop_WhileAnotherIsPatient|TestStop_LeavesNothing` + // control
	`|TestRun|TestRun_EndsWithItsContext|TestRun_TimeIsOver|TestRun_DoesNotWaitForWhatItLeft|TestClose_WhileProcessesStart|TestWrite_InputThatIsNotRead|TestLimits` +
	`|TestBlocks_MDX|TestFiles_Words` + // docs, and the repository
	`|TestBundles_NodeHangs|TestRPC_NodeComesBack|TestTokens_EndWhatHasBegun|TestTokens_ExpireAlsoWhileUsed|TestReplicas_StoreIsFull|TestJoin_TokenIsReplaced` + // fleet
	`|TestJoin_ComeBack|TestMove_HubOfAnotherNodeEnds|TestMove_DeletedWhereItGoes|TestMove_NodeIsCutOff|TestMove_OpenedMeanwhile|TestMove_ChangedMeanwhile|TestMove_DeletedLater` +
	`|TestHub_ClientsThatSendNothing|TestOnLoss_TheHubThatMovesItEnds|TestOnLoss_TwoHubs|TestOnLoss_SessionsGoOn|TestFeed_StoreIsAway|TestMove_DeletedWhileAwayAndMadeAgain|TestOnLoss_OneCannotGo|TestRestart_SessionIsAtItsNode` +
	`|TestWrites_StoreIsGone|TestBundles_ServersGoAway|TestStore_FolderIsTakenAway` +
	`|TestWorkspace_Conflicts|TestWorkspace_ManyFiles|TestWorkspace_WayBack|TestNames_EveryLegalByte|TestCopy_WhileFoldersBecomeFiles` + // fs
	`|TestStopGuard_Suspended|TestReapOrphans|TestInstall_IncompleteScript|TestGoTest_EveryFailureFailsIt|TestReadGoTest_NothingIsLost` + // internal
	`|TestDelete_MeetsAStart|TestCalls_NoneStaysOpen|TestClient_EndsWhileItIsGivenAProcess|TestStart_MeetsTheEndOfItsProcess|TestMode_AgentHasLeftIt` + // runtime
	`|TestAnswer_OfAnEarlierGatewayCountsForNothing|TestTurn_OthersLearnWhetherItBegan|TestTurn_AskedAgainAfterAKill|TestChanges_SlowReader|TestLog_HeldBack)$`

// check runs the short tests: of what has changed, since Go uses the results of the others again. Those that take longest
// begin first, so that none runs alone at the end. More begin than there are processors, since many wait.
func (s *suite) check(ctx context.Context) error {
	command := []string{"go", "test", "-short", "-vet=off", "-skip", plain + "|" + slow, "-p", "4", "-parallel", "8", endToEnd}
	for _, path := range longest {
		command = append(command, "./"+path)
	}
	return s.one(ctx, append(command, "./..."))
}
