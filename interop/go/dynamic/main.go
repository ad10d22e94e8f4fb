// The dynamic client: a built-in kind is found by discovery and used without a type.
package main

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config)))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	check.Must(err)
	check.That("discovery finds a kind", mapping.Resource.Resource == "deployments" && mapping.Scope.Name() == "namespace", mapping)
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	namespace, err := namespaces.Create(ctx, &unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": object{"generateName": "go-dynamic-"},
	}}, metav1.CreateOptions{})
	check.Must(err)

	deployments := client.Resource(mapping.Resource).Namespace(namespace.GetName())
	labels := object{"app": "web"}
	created, err := deployments.Create(ctx, &unstructured.Unstructured{Object: object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "one"},
		"spec": object{
			"selector": object{"matchLabels": labels},
			"template": object{"metadata": object{"labels": labels}, "spec": object{"containers": []any{object{"name": "web", "image": "nginx"}}}},
		},
	}}, metav1.CreateOptions{})
	check.Must(err)
	replicas, _, _ := unstructured.NestedInt64(created.Object, "spec", "replicas")
	check.That("an object is created and defaulted", created.GetGeneration() == 1 && replicas == 1, created)

	stale := created.DeepCopy()
	check.Must(unstructured.SetNestedField(created.Object, int64(2), "spec", "replicas"))
	created, err = deployments.Update(ctx, created, metav1.UpdateOptions{})
	check.Must(err)
	check.That("a change of spec is a new generation", created.GetGeneration() == 2, created)
	_, err = deployments.Update(ctx, stale, metav1.UpdateOptions{})
	check.That("a stale update conflicts", apierrors.IsConflict(err), err)
	check.Must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		got, err := deployments.Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			return err
		}
		check.Must(unstructured.SetNestedField(got.Object, int64(2), "status", "replicas"))
		_, err = deployments.UpdateStatus(ctx, got, metav1.UpdateOptions{})
		return err
	}))
	got, err := deployments.Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
	check.Must(err)
	status, _, _ := unstructured.NestedInt64(got.Object, "status", "replicas")
	paused, _, _ := unstructured.NestedBool(got.Object, "spec", "paused")
	check.That("status and patch are there", status == 2 && paused, got)
	list, err := deployments.List(ctx, metav1.ListOptions{})
	check.Must(err)
	check.That("a list finds it", len(list.Items) == 1 && list.GetKind() == "DeploymentList", list)
	check.Must(deployments.Delete(ctx, "one", metav1.DeleteOptions{}))
	_, err = deployments.Get(ctx, "one", metav1.GetOptions{})
	check.That("what is deleted is not found", apierrors.IsNotFound(err), err)
}
