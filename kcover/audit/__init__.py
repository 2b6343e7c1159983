"""The vocabulary of the audit log: one frozen dataclass for each verb, with typed fields.

Writers build these objects, the ledger stores ``to_entry()``, and readers match on what ``from_entry`` returns. Verbs
are stable: a class may be renamed, its verbs may not. Free text of people and of other systems has its own field;
everything that the portal says itself is a ``Reason``.
"""

from kcover.audit.approvals import (
    ApprovalLinkMade as ApprovalLinkMade,
    QuestionCancelled as QuestionCancelled,
    RescueApproved as RescueApproved,
    RescueRejected as RescueRejected,
    Vote as Vote,
)
from kcover.audit.base import (
    MAX_NAMED_NODES as MAX_NAMED_NODES,
    REGISTRY as REGISTRY,
    Act as Act,
    Columns as Columns,
    EntryLike as EntryLike,
    UnknownVerb as UnknownVerb,
    from_entry as from_entry,
    known_act as known_act,
)
from kcover.audit.call_answers import (
    Accepted as Accepted,
    Answer as Answer,
    ClaimMade as ClaimMade,
    EvictionBlocked as EvictionBlocked,
    JobRemoved as JobRemoved,
    LabelsPatched as LabelsPatched,
    NodePatched as NodePatched,
    NodeShape as NodeShape,
    PodEvicted as PodEvicted,
    PodGone as PodGone,
    PowerAnswer as PowerAnswer,
    WebhookAnswer as WebhookAnswer,
)
from kcover.audit.call_values import (
    CheckRequest as CheckRequest,
    DeviceTaint as DeviceTaint,
    GpuReset as GpuReset,
    HealthLabel as HealthLabel,
    JobCommand as JobCommand,
    NodePatch as NodePatch,
    PairTestCleanup as PairTestCleanup,
    PairTestJobs as PairTestJobs,
    PodRemoval as PodRemoval,
    PowerChange as PowerChange,
    ProbationChange as ProbationChange,
    RebootRequest as RebootRequest,
    RepairOrder as RepairOrder,
    Replacement as Replacement,
    StandbyChange as StandbyChange,
    StorageClaim as StorageClaim,
    ValidationRequest as ValidationRequest,
    Wanted as Wanted,
    WebhookDelivery as WebhookDelivery,
)
from kcover.audit.calls import (
    Call as Call,
    ClusterCall as ClusterCall,
    ClusterCallBegun as ClusterCallBegun,
    ClusterCallDone as ClusterCallDone,
    ClusterCallFailed as ClusterCallFailed,
)
from kcover.audit.encryption import SecretsRotated as SecretsRotated
from kcover.audit.evidence import (
    EvidenceAct as EvidenceAct,
    EvidenceKept as EvidenceKept,
    EvidenceMissed as EvidenceMissed,
)
from kcover.audit.fleet import (
    SECRET_CHANGED as SECRET_CHANGED,
    ActionLeaseMoved as ActionLeaseMoved,
    AutomationPaused as AutomationPaused,
    AutomationResumed as AutomationResumed,
    Change as Change,
    ChangeConfirmed as ChangeConfirmed,
    ChangeRejected as ChangeRejected,
    ChangeRequested as ChangeRequested,
    CheckRunAct as CheckRunAct,
    CheckRunFinished as CheckRunFinished,
    CheckRunRequested as CheckRunRequested,
    CheckRunStopped as CheckRunStopped,
    ClusterAccessTested as ClusterAccessTested,
    ClusterAct as ClusterAct,
    ClusterAdded as ClusterAdded,
    ClusterChanged as ClusterChanged,
    ClusterGuardsChanged as ClusterGuardsChanged,
    ClusterKubeconfigSealed as ClusterKubeconfigSealed,
    ClusterRemoved as ClusterRemoved,
    DatabaseDiverged as DatabaseDiverged,
    MaintenanceAct as MaintenanceAct,
    MaintenanceEnded as MaintenanceEnded,
    MaintenanceOpened as MaintenanceOpened,
    ModeAct as ModeAct,
    PendingChangeAct as PendingChangeAct,
)
from kcover.audit.identities import (
    GroupMapped as GroupMapped,
    GroupUnmapped as GroupUnmapped,
    IdentityCreated as IdentityCreated,
    IdentityLinked as IdentityLinked,
    IdentityUnlinked as IdentityUnlinked,
    SignedOutByProvider as SignedOutByProvider,
    SingleSignOnFailed as SingleSignOnFailed,
)
from kcover.audit.jobs import (
    JobMoveAct as JobMoveAct,
    JobMoved as JobMoved,
    JobMoving as JobMoving,
    JobOrderAct as JobOrderAct,
    JobOrdered as JobOrdered,
    JobOrderSettled as JobOrderSettled,
)
from kcover.audit.machines import (
    DriverAct as DriverAct,
    DriverChanged as DriverChanged,
    DriverCreated as DriverCreated,
    DriverDeleted as DriverDeleted,
    MachineConfirmed as MachineConfirmed,
)
from kcover.audit.needs import (
    NeedAcknowledged as NeedAcknowledged,
    NeedAct as NeedAct,
    NeedAssigned as NeedAssigned,
    NeedNoted as NeedNoted,
    NeedSnoozed as NeedSnoozed,
    NeedUnacknowledged as NeedUnacknowledged,
)
from kcover.audit.pair_plans import (
    PairPlanAct as PairPlanAct,
    PairPlanCancelled as PairPlanCancelled,
    PairPlanFinished as PairPlanFinished,
    PairPlanRequested as PairPlanRequested,
)
from kcover.audit.parts import PartAct as PartAct, PartFlagged as PartFlagged, PartReviewed as PartReviewed
from kcover.audit.probations import (
    ProbationAct as ProbationAct,
    ProbationBegan as ProbationBegan,
    ProbationEnded as ProbationEnded,
    ProbationEndRequested as ProbationEndRequested,
)
from kcover.audit.repairs import (
    RepairAct as RepairAct,
    RepairChanged as RepairChanged,
    RepairCommented as RepairCommented,
    RepairMove as RepairMove,
    RepairMoved as RepairMoved,
    RepairOpened as RepairOpened,
    VendorTermsChanged as VendorTermsChanged,
)
from kcover.audit.rescues import (
    CommandAnsweredLate as CommandAnsweredLate,
    DecisionAnswer as DecisionAnswer,
    DecisionMade as DecisionMade,
    DeviceRuleGone as DeviceRuleGone,
    MarksAct as MarksAct,
    MarksFound as MarksFound,
    MarksGone as MarksGone,
    RequestRefused as RequestRefused,
    RescueAct as RescueAct,
    RescueCalledBack as RescueCalledBack,
    RescueEnd as RescueEnd,
    RescueEnded as RescueEnded,
    RescueHeld as RescueHeld,
    RescueOpened as RescueOpened,
    StormOpened as StormOpened,
)
from kcover.audit.roles import (
    BindingAct as BindingAct,
    RoleAct as RoleAct,
    RoleChanged as RoleChanged,
    RoleDeleted as RoleDeleted,
    RoleGiven as RoleGiven,
    RoleMade as RoleMade,
    RoleTaken as RoleTaken,
)
from kcover.audit.second_factors import (
    FactorConfirmed as FactorConfirmed,
    FactorEnrolled as FactorEnrolled,
    FactorFailed as FactorFailed,
    FactorRemoved as FactorRemoved,
    FactorsReset as FactorsReset,
    InvitationAccepted as InvitationAccepted,
    RecoveryCodesMade as RecoveryCodesMade,
    UserInvited as UserInvited,
)
from kcover.audit.settings import (
    ChannelAct as ChannelAct,
    ChannelChanged as ChannelChanged,
    ChannelCreated as ChannelCreated,
    ChannelDeleted as ChannelDeleted,
    ChannelTested as ChannelTested,
    FirstChoiceDismissed as FirstChoiceDismissed,
    IncidentClosed as IncidentClosed,
    NamespaceRouteAct as NamespaceRouteAct,
    NamespaceRouteCreated as NamespaceRouteCreated,
    NamespaceRouteDeleted as NamespaceRouteDeleted,
    PasswordChanged as PasswordChanged,
    PolicyAct as PolicyAct,
    PolicyApplied as PolicyApplied,
    PolicyDeleted as PolicyDeleted,
    PreflightAct as PreflightAct,
    PreflightComplete as PreflightComplete,
    PreflightExpired as PreflightExpired,
    RouteAct as RouteAct,
    RouteCreated as RouteCreated,
    RouteDeleted as RouteDeleted,
    TokenAct as TokenAct,
    TokenCreated as TokenCreated,
    TokenRevoked as TokenRevoked,
    TokenRotated as TokenRotated,
    UserAct as UserAct,
)
from kcover.audit.settings_file import SecretsExported as SecretsExported, SettingsImported as SettingsImported
from kcover.audit.sign_in import (
    FailedAttempts as FailedAttempts,
    PasswordChangeFailed as PasswordChangeFailed,
    SessionsEnded as SessionsEnded,
    SignedIn as SignedIn,
    SignedOut as SignedOut,
    SignInFailed as SignInFailed,
    UserDisabled as UserDisabled,
    UserEnabled as UserEnabled,
    VendorSignatureFailed as VendorSignatureFailed,
)
from kcover.audit.sources import (
    SourceAct as SourceAct,
    SourceChanged as SourceChanged,
    SourceCreated as SourceCreated,
    SourceDeleted as SourceDeleted,
)
from kcover.audit.steps import (
    GuardPassed as GuardPassed,
    GuardRefused as GuardRefused,
    StepAct as StepAct,
    StepAttemptFailed as StepAttemptFailed,
    StepCommand as StepCommand,
    StepDone as StepDone,
    StepFailed as StepFailed,
    StepHeld as StepHeld,
    StepOverruled as StepOverruled,
    StepReplaced as StepReplaced,
    StepRetried as StepRetried,
    StepSettled as StepSettled,
    StepSkipped as StepSkipped,
    StepStartedOver as StepStartedOver,
)
from kcover.audit.streams import (
    EvidenceRead as EvidenceRead,
    ListExported as ListExported,
    RecordDropped as RecordDropped,
    RecordSentAgain as RecordSentAgain,
    RecordSetAside as RecordSetAside,
    SecretRead as SecretRead,
    SinkAct as SinkAct,
    SinkChanged as SinkChanged,
    SinkCreated as SinkCreated,
    SinkDeleted as SinkDeleted,
)
from kcover.audit.validations import (
    ProfileChanged as ProfileChanged,
    ValidationAct as ValidationAct,
    ValidationCancelled as ValidationCancelled,
    ValidationFinished as ValidationFinished,
    ValidationRequested as ValidationRequested,
)
from kcover.audit.views import ViewAct as ViewAct, ViewShared as ViewShared, ViewWithdrawn as ViewWithdrawn
