package agent_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestObjectMadeAgainBeforeTheRecord: an agent makes an object again, and is killed before it has recorded the new UID. The
// object is removed all the same when its work drops it.
func TestObjectMadeAgainBeforeTheRecord(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"), configMap("b", "1"))
	amw := w.names("web", "a", "b")
	w.stop()
	patch := []byte(`[{"op":"replace","path":"/status/appliedResources/0/uid","value":"former"}]`)
	_, err := w.amws.Patch(t.Context(), amw.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	kit.NoError(t, err)
	w.change(works, "web", configMap("b", "1"))
	w.agent()
	w.data("a", "")
	w.names("web", "b")
}

// TestBackupWithoutTheRecord: while a spec is being applied, a restore removes the record of its work, and the work is deleted. What was applied is gone
// when the agent says Deleted.
func TestBackupWithoutTheRecord(t *testing.T) {
	w := newWorld(t)
	raw := w.rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	amw := raw.names("web", "a")
	reached, goOn := make(chan struct{}, 10), make(chan struct{})
	raw.requests.Fail(func(request kit.Request) error {
		if isRecord(request) && request.Name == amw.Name {
			reached <- struct{}{}
			<-goOn
		}
		return nil
	})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	raw.send(raw.spec("web", "uid-1", 2, configMap("a", "2"), configMap("c", "2")), nil)
	kit.Receive(t, "the record is about to be written", reached)
	_, err := w.amws.Patch(t.Context(), amw.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	kit.NoError(t, errors.Join(err, w.amws.Delete(t.Context(), amw.Name, metav1.DeleteOptions{})))
	raw.delete("uid-1", 3)
	raw.send(raw.spec("later", "uid-2", 1, configMap("b", "1")), nil)
	raw.reported("uid-2", 1, workv1.WorkApplied) // so the agent holds the deletion
	release()
	raw.reported("uid-1", 0, workv1.WorkDeleted)
	for _, name := range []string{"a", "c"} {
		if _, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the work is deleted, and of its object %s there is: %v", name, err)
		}
	}
}

// TestBackupBeforeTheLastWord: a restore of the cluster brings a deleted work back before the broker has taken the status that it is deleted. The
// agent removes it first.
func TestBackupBeforeTheLastWord(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	backup := raw.names("web", "a")
	raw.limit(1)
	raw.delete("uid-1", 2)
	raw.noneApplied()
	backup.ResourceVersion = ""
	restored, err := raw.amws.Create(t.Context(), backup, metav1.CreateOptions{})
	kit.NoError(t, err)
	raw.configMapOf("a", restored)
	raw.noneApplied()
	raw.data("a", "")
	raw.limit(0)
	raw.reported("uid-1", 0, workv1.WorkDeleted)
}

// TestLateWatchBeforeTheLastWord: the watch shows that an AppliedManifestWork is being deleted when it is gone, before the broker has taken the
// status that the work is deleted. That is no restore.
func TestLateWatchBeforeTheLastWord(t *testing.T) {
	w, log := newWorld(t), &kit.Log{}
	deleting, deleted := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(deleted) })
	late := func(line string) {
		switch {
		case !strings.Contains(line, w.BrokerHost):
		case strings.HasPrefix(line, `{"type":"DELETED"`):
			<-deleted
		case strings.Contains(line, "deletionTimestamp"):
			<-deleting
		}
	}
	raw := w.rawSource("hub1", func(c *agent.Config) {
		c.Logger = log.Logger()
		kit.Intercept(c.Kube, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && strings.HasSuffix(r.URL.Path, "/appliedmanifestworks") && r.URL.Query().Has("watch") {
				response.Body = &lines{Closer: response.Body, from: bufio.NewReader(response.Body), before: late}
			}
			return response, err
		})
	})
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	amw := raw.names("web", "a")
	raw.limit(1)
	raw.delete("uid-1", 2)
	log.Await(t, "removed the work from the cluster")
	raw.requests.Take()
	close(deleting)
	ofRecord := func(r kit.Request) bool { return r.Name == amw.Name }
	kit.Eventually(t, "the agent reads the AppliedManifestWork", func() error {
		if len(raw.requests.All(ofRecord)) == 0 {
			return errors.New("no request")
		}
		return nil
	})
	raw.limit(0)
	raw.reported("uid-1", 0, workv1.WorkDeleted)
	if diff := cmp.Diff(map[string]int{"get appliedmanifestworks": 1}, raw.requests.Counts(ofRecord)); diff != "" {
		t.Errorf("requests about it: %s", diff)
	}
	if removed := log.Lines("removed the work from the cluster"); len(removed) != 1 {
		t.Errorf("it was removed again: %s", removed)
	}
}

// limit has the agent connect again, to a broker that accepts packets of up to that many bytes; 0: of any size.
func (r *rawSource) limit(bytes int) {
	r.Memory.Cut(cluster + "-agent")
	r.Memory.SetLimit(bytes)
	r.Memory.Restore(cluster + "-agent")
}

// lines reads a body by lines, and calls before with each of them first.
type lines struct {
	io.Closer
	from   *bufio.Reader
	before func(string)
	rest   []byte
}

func (l *lines) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		line, err := l.from.ReadString('\n')
		if line == "" {
			return 0, err
		}
		l.before(line)
		l.rest = []byte(line)
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// TestBackupOfAnUnknownWork: a work is known from its AppliedManifestWork alone, and the answer that its source does not have it was
// lost. Its absence from the source's list has the agent ask for it.
func TestBackupOfAnUnknownWork(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	raw.send(raw.spec("web", "uid-1", 1, configMap("a", "1")), nil)
	raw.reported("uid-1", 1, workv1.WorkApplied)
	raw.names("web")
	raw.stop()
	raw.agent()
	request := wirekit.Next(raw, raw.peer, "the agent asks for specs", func(r *wire.SpecResync) bool {
		return !r.Partial && slices.Contains(r.Versions, wire.SpecVersion{UID: "uid-1"})
	})
	for _, v := range request.Versions {
		if v.Probe {
			raw.disown(v.UID, "one")
		}
	}
	raw.peer.Publish(raw, raw.topic, &wire.StatusResync{Source: "hub1", Cluster: cluster, Buckets: &wire.Buckets{Count: 1, Indices: []int{0}}}, nil)
	wirekit.Next(raw, raw.peer, "the agent asks for the work", func(r *wire.SpecResync) bool {
		return r.Partial && slices.Equal(r.Versions, []wire.SpecVersion{{UID: "uid-1", Recorded: true}})
	})
	raw.disown("uid-1", "one")
	raw.data("a", "")
}
