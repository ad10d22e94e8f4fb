// Custom resources by the dynamic client: a definition is created, its kind is found by discovery and used.
package main

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"

	"capstan-interop/internal/check"
)

type object = map[string]any

func main() {
	ctx := context.Background()
	config := check.Config()
	client := dynamic.NewForConfigOrDie(config)
	discovered := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(discovered)

	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	name := "gadgets.go.interop.example.com"
	_, err := definitions.Create(ctx, &unstructured.Unstructured{Object: object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": name},
		"spec": object{
			"group": "go.interop.example.com", "scope": "Namespaced",
			"names": object{"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
			"versions": []any{object{
				"name": "v1", "served": true, "storage": true, "subresources": object{"status": object{}},
				"schema": object{"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}, metav1.CreateOptions{})
	check.Must(err)
	defer definitions.Delete(ctx, name, metav1.DeleteOptions{})

	kind := schema.GroupKind{Group: "go.interop.example.com", Kind: "Gadget"}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		mapper.Reset()
		_, err := mapper.RESTMapping(kind, "v1")
		return err == nil, nil
	})
	check.That("discovery finds the new kind", err == nil, err)
	mapping, err := mapper.RESTMapping(kind, "v1")
	check.Must(err)
	gadgets := client.Resource(mapping.Resource).Namespace("default")
	gadget := &unstructured.Unstructured{Object: object{
		"apiVersion": "go.interop.example.com/v1", "kind": "Gadget", "metadata": object{"name": "one"}, "spec": object{"n": int64(1)},
	}}
	var created *unstructured.Unstructured
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		created, err = gadgets.Create(ctx, gadget, metav1.CreateOptions{})
		return !apierrors.IsNotFound(err), err
	})
	check.Must(err)
	check.That("an object is created", created.GetGeneration() == 1, created)

	stale := created.DeepCopy()
	check.Must(unstructured.SetNestedField(created.Object, int64(2), "spec", "n"))
	created, err = gadgets.Update(ctx, created, metav1.UpdateOptions{})
	check.Must(err)
	check.That("a change of spec is a new generation", created.GetGeneration() == 2, created)
	_, err = gadgets.Update(ctx, stale, metav1.UpdateOptions{})
	check.That("a stale update conflicts", apierrors.IsConflict(err), err)
	check.Must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		got, err := gadgets.Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			return err
		}
		check.Must(unstructured.SetNestedField(got.Object, "ready", "status", "phase"))
		_, err = gadgets.UpdateStatus(ctx, got, metav1.UpdateOptions{})
		return err
	}))
	got, err := gadgets.Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"m":3}}`), metav1.PatchOptions{})
	check.Must(err)
	phase, _, _ := unstructured.NestedString(got.Object, "status", "phase")
	m, _, _ := unstructured.NestedInt64(got.Object, "spec", "m")
	check.That("status and patch are there", phase == "ready" && m == 3, got)
	list, err := gadgets.List(ctx, metav1.ListOptions{})
	check.Must(err)
	check.That("a list finds it", len(list.Items) == 1 && list.GetKind() == "GadgetList", list)
	check.Must(gadgets.Delete(ctx, "one", metav1.DeleteOptions{}))
	_, err = gadgets.Get(ctx, "one", metav1.GetOptions{})
	check.That("what is deleted is not found", apierrors.IsNotFound(err), err)
}
