package dryrun

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// writer makes every write a dry run.
type writer struct{ rest.Interface }

func dry(request *rest.Request) *rest.Request { return request.Param("dryRun", metav1.DryRunAll) }

func (w writer) Verb(verb string) *rest.Request { return dry(w.Interface.Verb(verb)) }
func (w writer) Post() *rest.Request            { return dry(w.Interface.Post()) }
func (w writer) Put() *rest.Request             { return dry(w.Interface.Put()) }

func (w writer) Patch(kind types.PatchType) *rest.Request { return dry(w.Interface.Patch(kind)) }

// Delete reads: a DELETE takes its options from its body, so that a parameter would not make it a dry
// run. Nothing here deletes.
func (w writer) Delete() *rest.Request { return w.Interface.Get() }
