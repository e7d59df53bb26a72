package pods

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/test/kit"
)

// parsed returns the pod p of a status, and of a spec, in YAML.
func parsed(t *testing.T, text string) corev1.Pod {
	t.Helper()
	pod := corev1.Pod{}
	kit.NoError(t, yaml.UnmarshalStrict([]byte(text), &pod))
	if pod.Name == "" {
		pod.Name = "p"
	}
	return pod
}

func TestCauseOf(t *testing.T) {
	for name, c := range map[string]struct {
		pods []string
		want string
	}{
		"none":          {nil, ""},
		"ready":         {[]string{"status: {phase: Running, conditions: [{type: Ready, status: 'True'}], containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff}}}]}"}, ""},
		"done":          {[]string{"status: {phase: Succeeded}"}, ""},
		"being deleted": {[]string{"{metadata: {name: p, deletionTimestamp: '2026-01-01T00:00:00Z'}, status: {containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull}}}]}}"}, ""},
		"new":           {[]string{"status: {phase: Pending}"}, ""},
		"unschedulable": {[]string{"status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/3 nodes are available: 3 Insufficient cpu.'}]}"},
			"Pod p: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."},
		"unschedulable, and preemption is no help": {[]string{"status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/1 nodes are available: 1 Insufficient cpu. " +
			"no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.'}]}"}, "Pod p: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."},
		"gated": {[]string{"status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated, message: waits}]}"}, "Pod p: SchedulingGated: waits"},
		"an image": {[]string{"status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ImagePullBackOff, message: \"Back-off pulling\\n image x\"}}}]}"},
			"Pod p: ImagePullBackOff: Back-off pulling image x"},
		"an image at once": {[]string{"status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: 'not found'}}}]}"}, "Pod p: ErrImagePull: not found"},
		"starting":         {[]string{"status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}"}, "Pod p: ContainerCreating: container c"},
		"a missing ConfigMap": {[]string{"status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerConfigError, message: configmap \"x\" not found}}}]}"},
			"Pod p: CreateContainerConfigError: container c: configmap \"x\" not found"},
		"a crash": {[]string{"status: {phase: Running, containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff, message: back-off 40s}}, lastState: {terminated: {exitCode: 3, reason: Error, message: a secret}}}]}"},
			"Pod p: CrashLoopBackOff: container c ended with exit code 3"},
		"a crash without history": {[]string{"status: {phase: Running, containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff}}}]}"}, "Pod p: CrashLoopBackOff: container c ends again and again"},
		"memory": {[]string{"status: {phase: Running, containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled}}}]}"},
			"Pod p: CrashLoopBackOff: container c used more memory than its limit: OOMKilled, exit code 137"},
		"memory, just now": {[]string{"status: {phase: Running, containerStatuses: [{name: c, state: {terminated: {exitCode: 137, reason: OOMKilled}}}]}"},
			"Pod p: OOMKilled: container c used more memory than its limit: OOMKilled, exit code 137"},
		"after a crash": {[]string{"status: {phase: Running, containerStatuses: [{name: c, state: {running: {}}, lastState: {terminated: {exitCode: 1, reason: Error}}}]}"},
			"Pod p: Error: container c ended with exit code 1, and runs again"},
		"a probe": {[]string{"{spec: {containers: [{name: c, readinessProbe: {}}]}, status: {phase: Running, containerStatuses: [{name: c, started: true, state: {running: {}}}]}}"},
			"Pod p: ContainersNotReady: container c runs and is not ready: its readiness probe fails"},
		"a startup probe": {[]string{"{spec: {containers: [{name: c, startupProbe: {}, readinessProbe: {}}]}, status: {phase: Running, containerStatuses: [{name: c, started: false, state: {running: {}}}]}}"},
			"Pod p: ContainersNotReady: container c runs and is not ready: its startup probe has not succeeded"},
		"an init container": {[]string{"status: {phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2}}}], containerStatuses: [{name: c, state: {waiting: {reason: PodInitializing}}}]}"},
			"Pod p: CrashLoopBackOff: init container i ended with exit code 2"},
		"a done init container": {[]string{"status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 0}}}]}"}, ""},
		"evicted":               {[]string{"status: {phase: Failed, reason: Evicted, message: The node was low on memory.}"}, "Pod p: Evicted: The node was low on memory."},
		"the gravest": {[]string{
			"{metadata: {name: a}, status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}}",
			"{metadata: {name: b}, status: {containerStatuses: [{name: c, state: {waiting: {reason: ImagePullBackOff}}}]}}",
			"{metadata: {name: d}, status: {containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull}}}]}}",
		}, "Pod b: ImagePullBackOff"},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []corev1.Pod
			for _, text := range c.pods {
				pods = append(pods, parsed(t, text))
			}
			if got := CauseOf(pods).String(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestReplaces: a cause is told as that with which the kubelet waits, once it does, and stays so.
func TestReplaces(t *testing.T) {
	waiting := func(pod, reason string) Cause {
		return causeOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
		}}})
	}
	ended := func(pod string) Cause {
		return causeOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}},
		}}})
	}
	for name, c := range map[string]struct {
		after, before Cause
		want          bool
	}{
		"the kubelet waits":             {waiting("a", "CrashLoopBackOff"), ended("a"), true},
		"it has tried again":            {ended("a"), waiting("a", "CrashLoopBackOff"), false},
		"it waits again":                {waiting("a", "CrashLoopBackOff"), waiting("a", "CrashLoopBackOff"), false},
		"it has ended again":            {ended("a"), ended("a"), false},
		"it waits with a pull":          {waiting("a", "ImagePullBackOff"), waiting("a", "ErrImagePull"), true},
		"it has tried to pull again":    {waiting("a", "ErrImagePull"), waiting("a", "ImagePullBackOff"), false},
		"another cause":                 {ended("a"), waiting("a", "ImagePullBackOff"), true},
		"another pod":                   {ended("b"), waiting("a", "CrashLoopBackOff"), true},
		"nothing was known":             {ended("a"), Cause{}, true},
		"what was known is not so more": {Cause{}, ended("a"), true},
	} {
		if got := c.after.Replaces(c.before); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSame(t *testing.T) {
	cause := func(name, reason string) Cause {
		return CauseOf([]corev1.Pod{parsed(t, "{metadata: {name: "+name+"}, status: {containerStatuses: [{name: c, state: {waiting: {reason: "+reason+"}}}]}}")})
	}
	if !cause("a", "ErrImagePull").Same(cause("a", "ImagePullBackOff")) {
		t.Error("an image that cannot be pulled is two causes")
	}
	if cause("a", "ErrImagePull").Same(cause("b", "ErrImagePull")) || cause("a", "ErrImagePull").Same(cause("a", "CrashLoopBackOff")) {
		t.Error("two causes are one")
	}
}

func FuzzCauseOf(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"p"},"status":{"containerStatuses":[{"name":"c","state":{"waiting":{"reason":"ErrImagePull","message":"m"}}}]}}`))
	f.Add([]byte(`{"status":{"initContainerStatuses":[{"state":{"terminated":{"exitCode":1}}}],"conditions":[{"type":"PodScheduled","status":"False"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var pod corev1.Pod
		if json.Unmarshal(data, &pod) != nil {
			return
		}
		if text := CauseOf([]corev1.Pod{pod}).Text; strings.ContainsAny(text, "\n\r") || len(text) > 3*maxText+len(data) {
			t.Errorf("%q", text)
		}
	})
}
