package workstate

import (
	"cmp"
	"regexp"
	"slices"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Cause is what blocks a work.
type Cause string

// Causes on the way to the cluster.
const (
	ClusterNotFound    Cause = "ClusterNotFound"
	ClusterNotAccepted Cause = "ClusterNotAccepted"
	AgentOff           Cause = "AgentOff"
	BrokerOff          Cause = "BrokerOff"
	HubOff             Cause = "HubOff"
	AccessRefused      Cause = "AccessRefused"
	TooLarge           Cause = "TooLarge"
	InvalidClusterName Cause = "InvalidClusterName"
	HeldBack           Cause = "HeldBack"
	NobodyListens      Cause = "NobodyListens"
	Paused             Cause = "Paused"
	ClusterPaused      Cause = "ClusterPaused"
	SetPaused          Cause = "SetPaused"
	RolloutWaits       Cause = "RolloutWaits"
	StatusesRefused    Cause = "StatusesRefused"
	NotAnswered        Cause = "NotAnswered"
)

// Causes at the agent.
const (
	Untrusted    Cause = "Untrusted"
	Unsealed     Cause = "Unsealed"
	InvalidSpec  Cause = "InvalidSpec"
	DeletionHeld Cause = "DeletionHeld"

	DependencyCycle  Cause = "DependencyCycle"
	InvalidDependsOn Cause = "InvalidDependsOn"
	InvalidApplyAt   Cause = "InvalidApplyAt"
)

// Causes on the cluster.
const (
	Forbidden       Cause = "Forbidden"
	ExecutorDenied  Cause = "ExecutorDenied"
	Webhook         Cause = "Webhook"
	WebhookFailed   Cause = "WebhookFailed"
	Policy          Cause = "Policy"
	Quota           Cause = "Quota"
	Conflict        Cause = "Conflict"
	Flapping        Cause = "Flapping"
	UnknownKind     Cause = "UnknownKind"
	NoNamespace     Cause = "NoNamespace"
	Immutable       Cause = "Immutable"
	UnknownStrategy Cause = "UnknownStrategy"
	InvalidManifest Cause = "InvalidManifest"
	NotApplied      Cause = "NotApplied"
	Missing         Cause = "Missing"
	Unreadable      Cause = "Unreadable"
	Unschedulable   Cause = "Unschedulable"
	ImagePull       Cause = "ImagePull"
	CrashLoop       Cause = "CrashLoop"
	NotReady        Cause = "NotReady"
	Failed          Cause = "Failed"
	Finalizer       Cause = "Finalizer"
	WaitsForWave    Cause = "WaitsForWave"
	WaitsForHook    Cause = "WaitsForHook"
	WaitsForWork    Cause = "WaitsForWork"
	Staged          Cause = "Staged"
	WindowMissed    Cause = "WindowMissed"
	HookFailed      Cause = "HookFailed"
	Budget          Cause = "Budget"
	InvalidRule     Cause = "InvalidRule"
	Warning         Cause = "Warning" // blocks nothing
)

// final are the causes that no retry ends: the work, or an object that it declares, must be changed.
var final = map[Cause]bool{TooLarge: true, InvalidClusterName: true, InvalidSpec: true, Immutable: true, UnknownStrategy: true, InvalidManifest: true, InvalidRule: true, HookFailed: true, DependencyCycle: true, InvalidDependsOn: true, InvalidApplyAt: true}

// Stalled reports whether nothing will happen until somebody changes the work, or an object that it declares. What a
// change elsewhere mends is tried again: rights, policies, quotas, kinds, keys, agents and pods.
func (s *State) Stalled() bool {
	return s.Phase == PhaseFailed && s.Blocker != nil && (s.Blocker.final() || slices.ContainsFunc(s.Blocker.Others, Blocker.final))
}

// goesOn are the causes that usually end by themselves, and the one that blocks nothing.
var goesOn = map[Cause]bool{NotAnswered: true, NotReady: true, RolloutWaits: true, WaitsForWave: true, WaitsForHook: true, WaitsForWork: true, Staged: true, Warning: true}

// Blocked reports whether a work does not go on without an action, or before somebody is back. It may be so in each phase.
func (s *State) Blocked() bool {
	return s.Blocker != nil && (s.Blocker.stays() || slices.ContainsFunc(s.Blocker.Others, Blocker.stays))
}

func (b Blocker) stays() bool { return !goesOn[b.Cause] }

// passing matches what a cluster refuses by what else is on it, in the words of an invalid object.
var passing = regexp.MustCompile(`(?i)already allocated|not found`)

func (b Blocker) final() bool {
	return final[b.Cause] && b.Reason != workv1.ReasonTooManySpecs && !passing.MatchString(b.Message)
}

// blocker returns the first cause in the order of the way.
func (f *Facts) blocker(s *State) *Blocker {
	for _, look := range []func(*Facts) *Blocker{clusterBlocker, deliveryBlocker, presenceBlocker, agentBlocker} {
		if b := look(f); b != nil {
			return b
		}
	}
	if f.Work.DeletionTimestamp != nil {
		return deletionBlocker(f)
	}
	if s.By != nil && s.By.Type == workv1.WorkComplete { // it is no longer applied, whatever becomes of its objects
		return cmp.Or(setBlocker(f), s.warnings(f))
	}
	for _, look := range []func(*Facts) *Blocker{answerBlocker, manifestBlocker, s.blocker, setBlocker, s.warnings} {
		if b := look(f); b != nil {
			return b
		}
	}
	return nil
}

// blocker tells what keeps an answered work from being ready by its conditions, if no manifest tells.
func (s *State) blocker(f *Facts) *Blocker {
	if s.By == nil || s.Phase != PhaseFailed && s.Phase != PhaseProgressing {
		return nil
	}
	cause, do := f.wait(s.By)
	switch {
	case cause != "":
	case s.By.Reason == workv1.ReasonHookFailed:
		cause, do = HookFailed, doWorkHookFailed
	case s.By.Type == workv1.WorkApplied:
		cause, do = NotApplied, doNotApplied
	case s.Phase == PhaseFailed:
		cause, do = Failed, doWorkFailed
	default:
		cause, do = NotReady, doWorkNotReady
	}
	return &Blocker{Cause: cause, Object: f.workObject(), Reason: s.By.Reason, Message: text(s.By), Do: f.fill(do), Since: &s.By.LastTransitionTime}
}
