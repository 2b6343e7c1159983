"""Policy texts that several tests need."""

KCE_EXAMPLE = """\
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata:
  name: test-1
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      nodeSelector:
        operator: "any" # 有效值any / all,表示节点需要匹配所有的labels还是任意的labels
        labels:
          app: demo
          env: test
      actions:
        - name: cordon
        - name: drain
          attribute:
            waittime: "20min"
        - name: reboot
          attribute:
            waittime: "20min"
            unCordon: "true"
    - priority: 10
      errorCode: ["63","64"]
      nodeSelector:
        operator: "any" # any / all
        labels:
          app: demo
          env: test
      actions:
        - name: cordon
        - name: drain
          attribute:
            waittime: "20min"
"""

STANDBY_EXAMPLE = """\
apiVersion: rescue.ksyun.com/v1
kind: WarmStandbyPolicy
metadata:
  name: cluster-warm-standby
spec:
  matches:
    - originNode:
        env: dev
      targetNode:
        env: dev
"""


def policy(name: str = "p", *, codes: str = '["62"]', priority: int = 10, extra: str = "", api: str = "own") -> str:
    """One policy of one rule that cordons; ``extra`` is written at the rule's depth."""
    version = "kcover.io/v1" if api == "own" else "rescue.ksyun.com/v1"
    return (
        f"apiVersion: {version}\nkind: RescuePolicy\nmetadata: {{name: {name}}}\nspec:\n  rules:\n"
        f"    - priority: {priority}\n      errorCode: {codes}\n      actions: [{{name: cordon}}]\n{extra}"
    )


def standby(name: str = "s") -> str:
    """One WarmStandbyPolicy of one pair."""
    return (
        f"apiVersion: kcover.io/v1\nkind: WarmStandbyPolicy\nmetadata: {{name: {name}}}\nspec:\n  matches:\n"
        "    - originNode: {env: dev}\n      targetNode: {env: spare}\n"
    )
