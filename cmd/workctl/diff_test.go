package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/direct"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// differ is a source and the agent of a cluster.
type differ struct {
	*world.World
	cluster, target, file, transport string
	client                           kubernetes.Interface
}

func newDiffer(t *testing.T) *differ {
	t.Helper()
	w := edge(t)
	return &differ{World: w, cluster: string(w.Clusters[0]), target: w.Targets[0], file: filepath.Join(t.TempDir(), "web.yaml"),
		transport: "--transport=" + writeTransport(t, w.Broker.Addr, world.Password), client: kubernetes.NewForConfigOrDie(plane.REST())}
}

// TestDiff asks a real agent about works on a real API server. What it answers is what applying then
// does, and the question itself leaves nothing behind.
func TestDiff(t *testing.T) {
	d := newDiffer(t)
	d.work("", configMap("settings", "k: '1'"))
	d.runs(1, "no agent subscribes to the cluster's topic", "diff")
	stop := d.StartAgent(0).Stop
	defer stop()
	kit.Eventually(t, "the agent answers", func() error {
		if got, text := d.run("diff"); got != cli.ExitNo {
			return errors.New(text)
		}
		return nil
	})
	t.Run("a new work", func(t *testing.T) { d.on(t).newWork() })
	t.Run("changes", func(t *testing.T) { d.on(t).changes() })
	t.Run("server-side apply", func(t *testing.T) { d.on(t).serverSide() })
	t.Run("rights", func(t *testing.T) { d.on(t).rights() })
	t.Run("what cannot be", func(t *testing.T) { d.on(t).impossible() })
	if _, err := run(t.Context(), t, "diff", d.transport); err == nil || !strings.Contains(err.Error(), "-f is required") {
		t.Errorf("without -f: %v", err)
	}
	d.runs(2, "--timeout must be positive", "diff", "--timeout=0s")
}

func (d *differ) on(t *testing.T) *differ {
	copied := *d
	copied.World = d.On(t)
	return &copied
}

// newWork: objects would be created, and nothing is.
func (d *differ) newWork() {
	d.work("", configMap("settings", "k: '1'"), secret("keys", "password: hunter2"))
	d.runs(cli.ExitNo, d.cluster+"/web  new\n  + v1 ConfigMap "+d.target+"/settings  would be created\n  + v1 Secret "+d.target+"/keys  would be created\n", "diff")
	found, err := d.client.CoreV1().ConfigMaps(d.target).List(d.Context(), metav1.ListOptions{LabelSelector: "workwire.dev/agent"})
	kit.NoError(d, err)
	records, err := versioned.NewForConfigOrDie(plane.REST()).WorkV1().AppliedManifestWorks().List(d.Context(), metav1.ListOptions{})
	kit.NoError(d, err)
	own := slices.ContainsFunc(records.Items, func(r workv1.AppliedManifestWork) bool { return r.Spec.AgentID == d.cluster })
	if len(found.Items) > 0 || own {
		d.Errorf("the question has left %d objects, and a record: %v", len(found.Items), own)
	}
	d.runs(0, "✓", "apply", "--timeout=1m")
	d.runs(0, "=", "diff")
}

// changes: fields, values of Secrets, warnings, and objects that the work drops.
func (d *differ) changes() {
	before := d.versions()
	d.work("", configMap("settings", "k: '2'", "extra: x"), configMap("more", "k: v"), secret("keys", "password: other"))
	d.runs(cli.ExitNo, `data.k: "1" → "2"`, "diff")
	out := d.runs(cli.ExitNo, `data.extra: + "x"`, "diff")
	for _, want := range []string{"/settings  would be changed", "/more  would be created", "/keys  would be changed", `data.password: "(not shown)" → "(not shown)"`} {
		if !strings.Contains(out, want) {
			d.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, hidden := range []string{"hunter2", "aHVudGVyMg", "b3RoZXI"} {
		if strings.Contains(out, hidden) {
			d.Errorf("a value of the Secret is shown:\n%s", out)
		}
	}
	d.work("", configMap("settings", "k: '1'"))
	d.runs(cli.ExitNo, "  - v1 Secret "+d.target+"/keys  would be deleted\n", "diff")
	d.runs(cli.ExitNo, `"result": "Removed"`, "diff", "-o=json")
	d.work("deleteOption: {propagationPolicy: Orphan}", configMap("settings", "k: '1'"))
	d.runs(cli.ExitNo, "/keys  would be left alone", "diff")
	d.work("", "{apiVersion: v1, kind: ConfigMap, metadata: {name: typo, namespace: TARGET}, dataa: {k: v}}")
	d.runs(cli.ExitNo, `warning: unknown field "dataa"`, "diff")
	if after := d.versions(); after != before {
		d.Errorf("the questions have changed objects: %s, before %s", after, before)
	}
}

// versions returns the versions of the target's objects.
func (d *differ) versions() (versions string) {
	d.Helper()
	for _, name := range []string{"settings"} {
		found, err := d.client.CoreV1().ConfigMaps(d.target).Get(d.Context(), name, metav1.GetOptions{})
		kit.NoError(d, err)
		versions += found.Name + "=" + found.ResourceVersion
	}
	found, err := d.client.CoreV1().Secrets(d.target).Get(d.Context(), "keys", metav1.GetOptions{})
	kit.NoError(d, err)
	return versions + " keys=" + found.ResourceVersion
}

const serverSide = "manifestConfigs: [{resourceIdentifier: {group: '', resource: configmaps, namespace: '*', name: '*'}, updateStrategy: {type: ServerSideApply}}]"

// serverSide: conflicts with other managers, and an object that would change to server-side apply.
func (d *differ) serverSide() {
	_, err := d.client.CoreV1().ConfigMaps(d.target).Patch(d.Context(), "contested", types.ApplyPatchType,
		fmt.Appendf(nil, "{apiVersion: v1, kind: ConfigMap, metadata: {name: contested}, data: {k: theirs}}"), metav1.PatchOptions{FieldManager: "rival"})
	kit.NoError(d, err)
	d.work(serverSide, configMap("contested", "k: ours"), configMap("fresh", "k: v"))
	out := d.runs(cli.ExitNo, "/contested  conflicts with other field managers", "diff")
	if !strings.Contains(out, "rival .data.k") || !strings.Contains(out, "/fresh  would be created") {
		d.Errorf("no manager, or no new object:\n%s", out)
	}
	d.work(serverSide, configMap("settings", "k: '3'"))
	out = d.runs(cli.ExitNo, `data.k: "1" → "3"`, "diff")
	if !strings.Contains(out, "would change to server-side apply") {
		d.Errorf("nothing tells of the change of strategy:\n%s", out)
	}
}

// rights: an executor that may write one kind only.
func (d *differ) rights() {
	_, err := d.client.CoreV1().ServiceAccounts(d.target).Create(d.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "limited"}}, metav1.CreateOptions{})
	kit.NoError(d, err)
	_, err = d.client.RbacV1().Roles(d.target).Create(d.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "limited"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}}}, metav1.CreateOptions{})
	kit.NoError(d, err)
	_, err = d.client.RbacV1().RoleBindings(d.target).Create(d.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "limited"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: d.target, Name: "limited"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "limited"}}, metav1.CreateOptions{})
	kit.NoError(d, err)
	d.work("executor: {subject: {type: ServiceAccount, serviceAccount: {name: limited, namespace: "+d.target+"}}}",
		configMap("settings", "k: '4'"), secret("keys", "password: other"))
	kit.Eventually(d, "the authorizer has seen the role", func() error {
		if _, out := d.run("diff"); !strings.Contains(out, `data.k: "1" → "4"`) {
			return errors.New(out)
		}
		return nil
	})
	out := d.runs(cli.ExitNo, "/keys  denied", "diff")
	if !strings.Contains(out, "the executor system:serviceaccount:"+d.target+":limited may not get secrets") || strings.Contains(out, "(not shown)") {
		d.Errorf("the denial is not told, or more than that:\n%s", out)
	}
	d.work("executor: {subject: {type: ServiceAccount, serviceAccount: {name: limited, namespace: "+d.target+"}}}", configMap("settings", "k: '4'"))
	d.runs(cli.ExitNo, "/keys  denied\n      the work drops it, and what becomes of it is not told: the executor", "diff")
}

// impossible: what the cluster does not serve or refuses, and what a dry run cannot tell.
func (d *differ) impossible() {
	fixed := func(annotations, value string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed, namespace: TARGET, annotations: {" + annotations + "}}, immutable: true, data: {k: '" + value + "'}}"
	}
	d.work("", fixed("", "1"), configMap("settings", "k: '1'"), secret("keys", "password: hunter2"))
	d.runs(0, "✓", "apply", "--timeout=1m")
	d.work("", fixed("", "2"))
	// Two applies within one second have one version, so the status may have been that of the one before.
	kit.Eventually(d, "the object is there", func() error {
		if _, out := d.run("diff"); !strings.Contains(out, "/fixed  invalid") {
			return errors.New(out)
		}
		return nil
	})
	d.work("", fixed("workwire.dev/recreate: OnImmutable", "2"))
	d.runs(cli.ExitNo, "/fixed  would be deleted and created again", "diff")
	d.work("", "{apiVersion: v1, kind: Namespace, metadata: {name: "+d.target+"-new}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: "+d.target+"-new}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: "+d.target+"-none}}",
		"{apiVersion: example.com/v1, kind: Gadget, metadata: {name: a}}", "{apiVersion: v1, kind: ConfigMap, metadata: {name: none}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: Upper, namespace: "+d.target+"}}")
	out := d.runs(cli.ExitNo, "/a  cannot be told\n      its namespace is made by this work", "diff")
	for _, want := range []string{"-none/a  refused", "example.com/v1 Gadget a  invalid", "v1 ConfigMap none  invalid", "/Upper  invalid", "/keys  cannot be told"} {
		if !strings.Contains(out, want) {
			d.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestDiffWithoutAnswer: an agent that subscribes and knows no dry runs.
func TestDiffWithoutAnswer(t *testing.T) {
	d := newDiffer(t)
	conn, err := mqtt.Dial(t.Context(), config.Config{BrokerHost: d.Broker.Addr, Username: d.cluster, Password: world.Password}, d.cluster+"-agent", nil)
	kit.NoError(t, err)
	defer conn.Close()
	kit.NoError(t, conn.Subscribe(t.Context(), "sources/+/clusters/"+d.cluster+"/sourceevents", 1))
	d.work("", configMap("settings", "k: '1'"))
	d.runs(cli.ExitTimeout, "the agent has not answered within 3s\nWhat to do: it is away, is an agent that knows no dry runs", "diff", "--timeout=3s")
}

func TestVerdict(t *testing.T) {
	object := func(result wire.DryRunResult) []wire.DryRunObject { return []wire.DryRunObject{{Result: result}} }
	for name, test := range map[string]struct {
		results []direct.Difference
		want    int
	}{
		"nothing":                {nil, 0},
		"nothing would change":   {[]direct.Difference{{Objects: object(wire.DryRunUnchanged)}, {Objects: object(wire.DryRunKept)}}, 0},
		"something would":        {[]direct.Difference{{Objects: object(wire.DryRunUnchanged)}, {Objects: object(wire.DryRunRemoved)}}, cli.ExitNo},
		"a result of the future": {[]direct.Difference{{Objects: object("Quantum")}}, cli.ExitNo},
		"no answer":              {[]direct.Difference{{Objects: object(wire.DryRunCreated)}, {Failure: "f", TimedOut: true}}, cli.ExitTimeout},
		"a failure":              {[]direct.Difference{{Failure: "f"}}, cli.ExitFailed},
	} {
		got := 0
		if coded, ok := errors.AsType[*cli.Error](verdict(test.results)); ok {
			got = coded.ExitCode()
		}
		if got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}

// TestDiffSigned: an agent that demands signatures answers signed questions only, also of a source that has
// proved nothing yet.
func TestDiffSigned(t *testing.T) {
	d := newDiffer(t)
	made, err := signing.NewKey()
	kit.NoError(t, err)
	private, err := made.PEM()
	kit.NoError(t, err)
	public, err := signing.FormatTrustedKeys(signing.TrustedKey{PublicKey: made.Public(), Sources: []wire.SourceID{"hub1"}})
	kit.NoError(t, err)
	dir := t.TempDir()
	key, keys := filepath.Join(dir, "signing.key"), filepath.Join(dir, "trusted-keys.yaml")
	kit.NoError(t, errors.Join(os.WriteFile(key, private, 0o600), os.WriteFile(keys, public, 0o600)))
	trusted, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: keys, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	d.StartAgent(0, func(c *agent.Config) { c.TrustedKeys, c.SignatureMaxAge = trusted, time.Hour })
	d.work("", configMap("settings", "k: '1'"))
	kit.Eventually(t, "the agent answers", func() error {
		if got, text := d.run("diff", "--signing-key="+key); got != cli.ExitNo || !strings.Contains(text, "would be created") {
			return errors.New(text)
		}
		return nil
	})
	d.runs(cli.ExitTimeout, "or demands signatures: --signing-key", "diff", "--timeout=3s")
	d.runs(0, "✓", "apply", "--signing-key="+key, "--timeout=1m")
	d.runs(0, "=", "diff", "--signing-key="+key)
	d.runs(0, "deleted", "delete", "--signing-key="+key, "--timeout=1m")
}

// work writes a work with manifests, in which a configMap or secret has no namespace yet.
func (d *differ) work(spec string, manifests ...string) {
	d.Helper()
	text := "apiVersion: work.open-cluster-management.io/v1\nkind: ManifestWork\nmetadata: {name: web}\nspec:\n  workload:\n    manifests:\n"
	for _, m := range manifests {
		text += "    - " + strings.ReplaceAll(m, "TARGET", d.target) + "\n"
	}
	if spec != "" {
		text += "  " + spec + "\n"
	}
	kit.NoError(d, os.WriteFile(d.file, []byte(text), 0o600))
}

func configMap(name string, data ...string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: TARGET}, data: {%s}}", name, strings.Join(data, ", "))
}

func secret(name, data string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: TARGET}, stringData: {%s}}", name, data)
}

func (d *differ) run(command string, args ...string) (code int, text string) {
	out, err := run(d.Context(), d, append([]string{command, "-f=" + d.file, d.transport, "-n=" + d.cluster}, args...)...)
	if coded, ok := errors.AsType[*cli.Error](err); ok {
		code = coded.ExitCode()
	} else if err != nil {
		code = 1
	}
	return code, fmt.Sprint(out, err)
}

// runs runs a command and returns its output.
func (d *differ) runs(code int, want, command string, args ...string) string {
	d.Helper()
	got, text := d.run(command, args...)
	if got != code || !strings.Contains(text, want) {
		d.Errorf("%s %q: exit code %d, want %d with %q:\n%s", command, args, got, code, want, text)
	}
	return text
}
