package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/test/kit"
)

// TestSecretOfAJoin reads and writes a Secret as an agent that joins does: not over what somebody else has written.
func TestSecretOfAJoin(t *testing.T) {
	stored := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().Secrets("default")
	secrets, err := newSecrets(plane.REST(), "default")
	kit.NoError(t, err)
	if _, err := secrets.Get(t.Context(), "join", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("of no Secret: %v", err)
	}
	_, err = stored.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "join"}, Data: map[string][]byte{"token": []byte("t")}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	read, err := secrets.Get(t.Context(), "join", metav1.GetOptions{})
	kit.NoError(t, err)
	if string(read.Data["token"]) != "t" {
		t.Errorf("read %v", read.Data)
	}
	changed := read.DeepCopy()
	changed.Data["token"] = []byte("u")
	_, err = secrets.Update(t.Context(), changed, metav1.UpdateOptions{})
	kit.NoError(t, err)
	if _, err := secrets.Update(t.Context(), read, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an older one is written: %v", err)
	}
	now, err := stored.Get(t.Context(), "join", metav1.GetOptions{})
	kit.NoError(t, err)
	if string(now.Data["token"]) != "u" {
		t.Errorf("stored is %v", now.Data)
	}
}
